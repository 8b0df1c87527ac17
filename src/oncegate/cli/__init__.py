"""The command line: one file a command group; `main` starts it and turns errors into exit codes."""
