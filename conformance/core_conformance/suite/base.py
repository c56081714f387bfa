"""What all test classes of the suite are."""

from __future__ import annotations


class ConformanceTests:
    """A class of tests that is collected wherever it is imported, under whatever name.

    Subclass one of the suite's classes in your own file to add tests; they get ids of their own file.
    """

    __core_conformance__ = True
    abstract = True

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "abstract" not in cls.__dict__:
            cls.abstract = False
