"""An app that is not ours: it writes a file into the folder of every site that runs it."""
