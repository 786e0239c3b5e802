"""Studies: many runs from a plan, kept as they finish, and laid out as tables, figures and a page."""

from fedkmeans.study.grid import Task, key_of, tasks_of, wanted
from fedkmeans.study.measure import measure
from fedkmeans.study.parse import load_plan, parse_plan
from fedkmeans.study.plan import AlgorithmPlan, DataPlan, Distribution, Plan
from fedkmeans.study.run import Progress, run_study
from fedkmeans.study.store import Record, Store

__all__ = [
    "Plan",
    "DataPlan",
    "Distribution",
    "AlgorithmPlan",
    "load_plan",
    "parse_plan",
    "Task",
    "tasks_of",
    "wanted",
    "key_of",
    "Record",
    "Store",
    "measure",
    "Progress",
    "run_study",
]
