-- Only the other ledger keeps several versions of a row and needs room for them: nothing changes here.
SELECT 1 WHERE false;
