import json
import time
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    nodes = sorted(grid.get_node_ids())
    taken = []
    for _ in range(int(context.run_config["rounds"])):
        start = time.monotonic()
        messages = [Message(RecordDict(), node, "query") for node in nodes]
        waiting = set(grid.push_messages(messages))
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
            time.sleep(float(context.run_config["poll"]))
        taken.append(time.monotonic() - start)
    Path(str(context.run_config["out"])).write_text(json.dumps(taken))
