"""The old place of maintenance and review: a program that imports from it reads where its names are now."""

raise ImportError(
    "oncegate.upkeep was split: import Pruner from oncegate.maintenance.pruner,"
    " and StepDecision, which was StepWord, from oncegate.review.decisions",
    name=__name__,
)
