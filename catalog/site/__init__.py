"""The catalog's static site.

Enters: backends/*.toml, suites.toml, reports/, stages/ and benchmarks/ of the catalog, and a date. Leaves: a folder of
pages that need no server and no script to be read, index.json, and the two tables that core carries for work offline.
It must not know how a report is made: it verifies and shows what stands in it.
"""
