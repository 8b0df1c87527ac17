"""The report as text, JSON, SARIF, JUnit, GitHub annotations and Markdown."""
