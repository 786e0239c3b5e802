"""Errors a person can act on: each message names the client, the column and the remedy.

All but :class:`FederationError` and its kinds are also :class:`ValueError`, so that code written for
scikit-learn's conventions catches them; the command line turns each into one line and exit code 2.
"""


class FedKMeansError(Exception):
    """Base of every error this package raises on purpose."""


class DataError(FedKMeansError, ValueError):
    """The data of a client, or a file, cannot be used as it is."""


class ParameterError(FedKMeansError, ValueError):
    """A parameter has a value that makes no sense."""


class FederationError(FedKMeansError, RuntimeError):
    """The federation cannot go on, for instance because no client answers."""


class WireError(FederationError):
    """What came over the wire, or from a disk, is not what was sent."""


class JournalError(FederationError):
    """The journal of a run cannot be written, or does not belong to this run."""


class ModelError(FedKMeansError, ValueError):
    """A saved model cannot be read, or does not fit the data."""


class StudyError(FedKMeansError, ValueError):
    """The plan of a study, or what is kept of its runs, cannot be used."""
