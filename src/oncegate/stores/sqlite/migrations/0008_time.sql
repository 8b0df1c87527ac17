-- Nothing to change: the embedded ledger goes by the machine's ticks, which no clock step moves.
SELECT 1;
