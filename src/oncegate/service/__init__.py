"""The service: oncegate as one process in front of handlers in any language.."""
