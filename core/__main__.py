"""`python -m core`."""

from .cli import main

raise SystemExit(main())
