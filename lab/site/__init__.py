"""The documentation site: generated pages, the style check, and the hook that mkdocs calls.

`python -m lab.site` writes every generated page; with `--check` it names those that are out of date.
Nothing here is in the wheel, and nothing needs mkdocs except the hook.
"""
