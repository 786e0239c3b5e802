"""``python -m fedkmeans`` is ``fedkmeans``."""

from fedkmeans.cli import main

if __name__ == "__main__":
    main()
