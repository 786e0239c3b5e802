"""How several sites of one process answer a query."""

from __future__ import annotations

import pickle
from threading import Barrier
from typing import Annotated

import numpy as np
import pytest

from fedkmeans import InProcess, Site
from fedkmeans.client.handlers import handles_each
from fedkmeans.protocol.constraints import Whole
from fedkmeans.protocol.declaration import Additive, Query, message
from fedkmeans.protocol.messages import Bundle, Describe, LocalUpdate, SendDelta


@message
class RowCount(Additive):
    n: Annotated[int, Whole(0, 10**9)]


@message(reply=RowCount)
class CountRows(Query):
    pass


@message(reply=RowCount)
class CountTogether(Query):
    pass


@handles_each(CountRows)
def count_rows(site, query):
    return RowCount(site.answer(Describe()).n_samples)  # the handler asks its own site


meeting = Barrier(3, timeout=20)


@handles_each(CountTogether)
def count_together(site, query):
    meeting.wait()  # breaks unless three sites answer at the same time
    return RowCount(len(site.X))


def federations(n_jobs):
    X = np.random.default_rng(0).normal(size=(60, 2))
    yield InProcess.from_arrays(X, np.arange(60) % 3, n_jobs=n_jobs)
    yield InProcess([Site(name, X[i::3]) for i, name in enumerate("abc")], n_jobs=n_jobs)


@pytest.mark.parametrize("query", [CountRows(), Bundle((CountRows(), CountRows()))], ids=["alone", "bundle"])
def test_a_handler_may_ask_its_own_site(query):
    for federation in federations(n_jobs=2):
        replies = federation.ask(query, federation.clients)
        assert [getattr(reply, "replies", (reply,))[0].n for reply in replies.values()] == [20, 20, 20]


def test_handlers_of_single_sites_run_at_the_same_time():
    for federation in federations(n_jobs=3):
        assert federation.total(CountTogether(), federation.clients).record.n == 60


def test_a_table_does_not_show_its_rows():
    for federation in federations(n_jobs=1):
        for site in federation.sites.values():
            assert str(site.X[0, 0])[:5] not in repr(site.table)
            assert hash(site.table)


def test_delta_states_of_another_process_have_no_stamps():
    """Stamps count the replies of a process: in another one they would stand for other replies."""
    X = np.random.default_rng(0).normal(size=(300, 64))
    federation = InProcess.from_arrays(X, np.arange(300) % 3, kernel="numba")
    update = LocalUpdate(X[:20], 1, 1e-8, "dynamic", "keep")
    query = SendDelta(update, "run", "total", "exchange", dict.fromkeys(federation.clients))
    federation.total(query, federation.clients)
    site = next(iter(federation.sites.values()))
    copy = pickle.loads(pickle.dumps(site))
    (before,), (after,) = (one.table.delta_states["run"].values() for one in (site, copy))
    assert (before.stamps != -2).all()
    assert (after.stamps == -2).all()
    np.testing.assert_array_equal(before.rows.pending, after.rows.pending)
