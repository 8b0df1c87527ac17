"""The project model: modules, names, types, as far as the source shows them. Nothing is imported."""
