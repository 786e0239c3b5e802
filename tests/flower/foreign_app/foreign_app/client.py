from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    (Path(str(context.node_config["site-folder"])) / "was-here").write_text("anything could be done here")
    return Message(RecordDict(), reply_to=message)
