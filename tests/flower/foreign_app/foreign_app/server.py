import json
import time
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask every site once, and write down whether it did as it was told."""
    messages = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    waiting, obeyed = set(grid.push_messages(messages)), []
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            obeyed.append(not reply.has_error())
        time.sleep(0.5)
    Path(str(context.run_config["out"])).write_text(json.dumps(obeyed))
