"""What libraries do: which calls leave the process, which reserve, which acknowledge."""
