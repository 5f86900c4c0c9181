"""`python -m dynfrsdb.cli` is the command `dynfrsdb`."""

from dynfrsdb.cli import main

if __name__ == "__main__":
    main()
