"""Data sets, tables of clients, and partitions of one data set among clients."""

from fedkmeans._utils.atomic_io import atomic_folder, atomic_path
from fedkmeans.data.clients import ClientTable, labels_by_file, read_clients
from fedkmeans.data.datasets import (
    DATA_VARIABLE,
    DATASETS,
    Dataset,
    data_home,
    load_dataset,
    load_digits,
    load_femnist,
    load_mnist,
    load_synthetic,
)
from fedkmeans.data.labels import write_labels
from fedkmeans.data.leaf import load_leaf
from fedkmeans.data.partitions import (
    PARTITIONERS,
    by_column,
    clustered,
    dirichlet,
    half_iid,
    iid,
    label_mix,
    partition,
)
from fedkmeans.data.tables import MISSING_RULES, Table, read_table

__all__ = [
    "Dataset",
    "DATASETS",
    "load_dataset",
    "load_synthetic",
    "load_digits",
    "load_mnist",
    "load_femnist",
    "load_leaf",
    "DATA_VARIABLE",
    "data_home",
    "Table",
    "ClientTable",
    "MISSING_RULES",
    "read_table",
    "read_clients",
    "labels_by_file",
    "write_labels",
    "PARTITIONERS",
    "partition",
    "iid",
    "half_iid",
    "clustered",
    "label_mix",
    "dirichlet",
    "by_column",
    "atomic_path",
    "atomic_folder",
]
