"""Who owns which backend name, and what has been certified; `python -m catalog.site` makes the pages."""
