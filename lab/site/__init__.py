"""The documentation site: generated pages, and the hook that mkdocs calls.

`python -m lab.site` writes every generated page; `python -m lab.site --check` names those that are out of date.
Nothing here is in the wheel, and nothing needs mkdocs except the hook.
"""
