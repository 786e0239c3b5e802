"""A new message is one declaration and one handler: it travels, is checked, answered and added up."""

from typing import Annotated

import numpy as np
import pytest

from fedkmeans import InProcess
from fedkmeans._utils.typing import FloatArray
from fedkmeans.client.handlers import handles_each
from fedkmeans.errors import FederationError, WireError
from fedkmeans.protocol.codec import decode, encode
from fedkmeans.protocol.constraints import Array, Whole
from fedkmeans.protocol.declaration import Additive, Query, Reply, message, reply_type
from fedkmeans.protocol.exchange import Ask, AskTotal, run
from fedkmeans.protocol.messages import Bundle, Describe
from fedkmeans.protocol.validation import check_query, check_reply

# --- the ten lines -----------------------------------------------------------------------------


@message
class ColumnSums(Additive):
    sums: Annotated[FloatArray, Array(("m",))]


@message(reply=ColumnSums)
class AddColumns(Query):
    power: Annotated[int, Whole(1, 9)]


@handles_each(AddColumns)
def add_columns(site, query):
    return ColumnSums((site.X**query.power).sum(axis=0))


# -----------------------------------------------------------------------------------------------

X = np.arange(12.0).reshape(6, 2)
FEDERATION = InProcess.from_arrays(X, [0, 0, 1, 1, 1, 2])


def ask(kind, query, clients=FEDERATION.clients):
    return (yield kind(query, clients))


def test_it_is_answered_and_added_up():
    replies = run(FEDERATION, ask(Ask, AddColumns(1)))
    np.testing.assert_array_equal(replies["1"].sums, X[2:5].sum(axis=0))
    total = run(FEDERATION, ask(AskTotal, Bundle((AddColumns(2), Describe())), ("2",)))
    np.testing.assert_array_equal(total.record.replies[0].sums, X[5] ** 2)
    total = run(FEDERATION, ask(AskTotal, AddColumns(2)))
    np.testing.assert_array_equal(total.record.sums, (X**2).sum(axis=0))


def test_it_travels():
    assert decode(encode(AddColumns(3)), Query) == AddColumns(3)
    reply = decode(encode(ColumnSums(X[0])), reply_type(AddColumns))
    np.testing.assert_array_equal(reply.sums, X[0])


@pytest.mark.parametrize("power", [0, 10, 1.5])
def test_a_query_is_checked(power):
    with pytest.raises(WireError, match="the query's power is"):
        check_query(AddColumns(power), 2)
    check_query(AddColumns(9), 2)


@pytest.mark.parametrize(
    ("sums", "reason"),
    [
        (X[0, :1], r"sums has shape \(1,\), expected \(2\)"),
        (np.array([1.0, np.nan]), "sums has values that are missing"),
        (X[0].astype(np.float32), "no array of float64"),
    ],
)
def test_a_reply_is_checked(sums, reason):
    check_reply(AddColumns(1), ColumnSums(X[0]), 2)
    with pytest.raises(WireError, match=reason):
        check_reply(AddColumns(1), ColumnSums(sums), 2)


def test_what_does_not_add_up_says_so():
    with pytest.raises(TypeError, match="Description does not add up; use Ask"):
        run(FEDERATION, ask(AskTotal, Describe()))


def test_a_query_without_a_handler_is_refused():
    @message(reply=ColumnSums)
    class Unanswered(Query):
        pass

    with pytest.raises(FederationError, match="No handler is known for the query Unanswered"):
        run(FEDERATION, ask(Ask, Unanswered()))


def test_two_messages_cannot_have_one_name():
    with pytest.raises(TypeError, match="two kinds of record called Describe"):

        @message
        class Describe(Reply):
            pass
