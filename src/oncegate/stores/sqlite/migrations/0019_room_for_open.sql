-- Only the other ledger's plans need room in the table of what is open: nothing changes here.
SELECT 1 WHERE false;
