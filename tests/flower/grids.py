"""A Grid whose nodes live in this process: messages go through Flower's own ClientApp, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedkmeans.flower.client_app import app as client_app

# What Flower sets in each process that it starts.
TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 7, 1, 1


class LocalGrid:
    """Answers messages when they are pulled.

    Parameters
    ----------
    folders : dict
        The site folder of each node, by its number.
    tamper : callable
        From (node, message, reply) to what is delivered instead; None for nothing, ever.
    """

    def __init__(self, folders, tamper=lambda node, message, reply: reply, run_config=None):
        self.folders, self.tamper = dict(folders), tamper
        self.run_config = run_config or {}
        self.run = SimpleNamespace(run_id=7)
        self.connected = set(folders)
        self.pushed = {}
        self.messages = []

    def get_node_ids(self):
        return sorted(self.connected)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id + str(len(self.messages))
            self.pushed[message.metadata.message_id] = message
            self.messages.append(message)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids):
        replies = []
        for message_id in message_ids:
            message = self.pushed.pop(message_id, None)
            if message is None or message.metadata.dst_node_id not in self.connected:
                continue
            node = message.metadata.dst_node_id
            reply = self.tamper(node, message, self.answer(node, message))
            if reply is not None:
                replies.append(reply)
        return replies

    def answer(self, node, message):
        folder = self.folders[node]
        context = Context(
            run_id=7,
            node_id=node,
            node_config={"site-folder": str(folder)} if folder else {"partition-id": node},
            state=RecordDict(),
            run_config=self.run_config,
        )
        return client_app(message, context)


def reply_to(message, content):
    return Message(content, reply_to=message)
