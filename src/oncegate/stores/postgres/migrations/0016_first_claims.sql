-- Only the other ledger leaves first claims out of its index of what is open: nothing changes here.
SELECT 1 WHERE false;
