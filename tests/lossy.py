"""A federation that loses replies."""

from __future__ import annotations

from fedkmeans.protocol.exchange import add_up


class Lossy:
    """Lets sites answer and then loses some replies; sites may lose their state or leave before a round.

    Parameters
    ----------
    inner : InProcess
    lose : callable
        From the number of the exchange to the clients whose replies get lost on the way back.
    before : callable
        Called with the number of the exchange and the inner federation, to do harm.
    """

    def __init__(self, inner, lose=lambda exchange: (), before=lambda exchange, inner: None):
        self.inner, self.lose, self.before = inner, lose, before
        self.exchange = 0
        self.queries = []

    @property
    def clients(self):
        return self.inner.clients

    def ask(self, query, clients):
        self.before(self.exchange, self.inner)
        lost = self.lose(self.exchange)
        self.exchange += 1
        self.queries.append(query)
        # The site has computed its reply and changed its state before the reply is lost.
        return {name: reply for name, reply in self.inner.ask(query, clients).items() if name not in lost}

    def total(self, query, clients):
        return add_up(self.ask(query, clients))
