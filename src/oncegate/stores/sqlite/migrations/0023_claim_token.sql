-- Only the other ledger kept the token of a claim in a table of its own: nothing changes here.
SELECT 1 WHERE false;
