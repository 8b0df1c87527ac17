"""What a user would pick instead, each in an environment and a process of its own, measured alike."""
