"""`python -m prorl`."""

from prorl.cli import main

if __name__ == "__main__":
    main()
