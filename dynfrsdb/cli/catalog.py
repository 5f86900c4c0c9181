"""`catalog`: all stores of a company, and one request over many of them.

Only `forget`, where a store holds the subject, needs the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.output import Form, emit, emit_rows, note, properties, rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dynfrsdb.catalog.handle import Catalog
    from dynfrsdb.catalog.registry import Contact

REFUSED, UNREACHABLE = 3, 6
_CODES = {"done": 0, "refused": REFUSED, "unreachable": UNREACHABLE, "pending": UNREACHABLE}
_CONTACTS = ("store", "state", "entries", "why")
_STORES = ("path", "host", "features", "samples", "sequence", "seen", "problem")
_LEDGER = ("path", "sequence", "time", "kind", "added", "removed", "samples", "hash")
_HOLDS = ("path", "number", "subject", "since", "until", "in_force")
_SOURCES = ("path", "url", "table", "query", "where", "first", "last")
_TIMES = ("time", "seen", "made", "unlearned", "since", "until")
_OUTCOMES = ("store", "outcome", "change", "removed", "unlearned")


def _opened(url: str | None, create: bool = False) -> Catalog:
    from dynfrsdb.catalog import place
    from dynfrsdb.catalog.handle import Catalog

    return Catalog(place.url(url), create)


@click.group(no_args_is_help=False)
def catalog() -> None:
    """All your stores: where they are, what they did, and one request over all of them.

    The stores are the truth; the catalog can be dropped and made again from them.
    """


@catalog.command()
@click.argument("stores", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--moved", is_flag=True, help="A store that is registered on another host was moved here.")
@options.catalog
@options.as_json
def register(stores: tuple[Path, ...], moved: bool, url: str | None, as_json: bool) -> None:
    """Put stores into the catalog; a new SQLite catalog is made.

    One that cannot be registered does not keep the others out.
    """
    from dynfrsdb.catalog import registry
    from dynfrsdb.errors import Error, Unreachable

    opened, contacts, refusals = _opened(url, create=True), [], []
    for store in stores:
        try:
            contacts.append(registry.register(opened, store, moved))
        except Unreachable:
            raise
        except Error as error:
            refusals.append(error)
    if contacts:
        _contacts(contacts, as_json)
    for other in refusals[1:]:
        note(str(other))
    if refusals:
        raise refusals[0]


@catalog.command()
@click.argument("which", metavar="STORE")
@options.catalog
@options.as_json
def unregister(which: str, url: str | None, as_json: bool) -> None:
    """Take a store, by its path or uuid, out of the catalog; the store itself is not touched."""
    from dynfrsdb.catalog import registry

    _contacts([registry.unregister(_opened(url), which)], as_json)


@catalog.command()
@click.option("--all", "everything", is_flag=True, help="Also those that were taken out.")
@options.catalog
@options.rows
def stores(everything: bool, url: str | None, form: Form) -> None:
    """All stores that are registered, as they were seen last."""
    from dynfrsdb.catalog import report

    _emit(report.stores(_opened(url), everything), _STORES, form)


@catalog.command()
@options.catalog
@options.as_json
@click.pass_context
def refresh(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """Bring in what is new in every store; exit code 6 if one of this host cannot be reached."""
    from dynfrsdb.catalog import registry

    ctx.exit(_contacts(registry.refresh(_opened(url)), as_json))


@catalog.command()
@click.argument("places", nargs=-1, metavar="[STORE_OR_DIRECTORY]...", type=click.Path(path_type=Path))
@options.catalog
@options.as_json
@click.pass_context
def rebuild(ctx: click.Context, places: tuple[Path, ...], url: str | None, as_json: bool) -> None:
    """Make everything that is said of stores anew, from the stores.

    Stores at or below STORE_OR_DIRECTORY are registered first. Requests stay, and so does what is known of stores that
    cannot be reached.
    """
    from dynfrsdb.catalog import registry

    ctx.exit(_contacts(registry.rebuild(_opened(url, create=True), places), as_json))


@catalog.command()
@click.option("--subject", required=True, help="Whose samples to remove, everywhere.")
@click.option("--request-id", required=True, metavar="TEXT", help="A name for this request; it is kept as it is.")
@click.option("--keep-subject", is_flag=True, help="Keep the subject's name in the catalog, not only a keyed hash.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say which stores hold the subject.")
@options.timeout
@options.catalog
@options.as_json
@click.pass_context
def forget(
    ctx: click.Context,
    subject: str,
    request_id: str,
    keep_subject: bool,
    dry_run: bool,
    timeout: float,
    url: str | None,
    as_json: bool,
) -> None:
    """Forget somebody in every store that holds them, one transaction each.

    Run again, it goes on where it was stopped, and asks those again that refused or could not be reached. Exit code 0
    if all is done, 3 if a store refused, 6 if one could not be reached.
    """
    from dynfrsdb.catalog import report
    from dynfrsdb.catalog.requests import forget as carry_out
    from dynfrsdb.cli.opening import database

    opened, name = _opened(url), options.as_given(subject)
    if dry_run:
        _show_holders(opened, name, request_id, as_json)
        return
    try:
        said = carry_out(opened, name, request_id, database, keep_subject=keep_subject, timeout=timeout)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; stores that were done stay done. Run it again to go on") from None
    (found,) = report.requests(opened, request_id)
    for part in found["stores"]:
        part["why"] = said.get(part["uuid"], part["why"])
    _show_request(ctx, found, as_json)


def _show_holders(opened: Catalog, name: str | bytes, request_id: str, as_json: bool) -> None:
    from dynfrsdb.catalog import report
    from dynfrsdb.catalog.requests import find

    held = find(opened, name, request_id)
    columns = ("store", "samples", "why")
    found = [
        {"store": each["path"], "samples": None, "why": None, ("why" if isinstance(said, str) else "samples"): said}
        for each in report.stores(opened)
        for said in [held[each["uuid"]]]
    ]
    emit(found, lambda: rows(columns, [[each[column] for column in columns] for each in found]), as_json)


@catalog.command()
@click.argument("request")
@options.catalog
@options.as_json
@click.pass_context
def status(ctx: click.Context, request: str, url: str | None, as_json: bool) -> None:
    """What became of a request in each store, as it was seen last; exit codes as of 'forget'."""
    from dynfrsdb.catalog import report

    (found,) = report.requests(_opened(url), request)
    _show_request(ctx, found, as_json)


@catalog.command()
@options.catalog
@options.rows
def requests(url: str | None, form: Form) -> None:
    """All requests, in the order they were made, and in how many stores what became of them."""
    from dynfrsdb.catalog import report

    columns = ("request", "made", "state", "subject_hash", "stores")
    found = [
        {**each, "stores": dict(Counter(part["outcome"] for part in each["stores"]))}
        for each in report.requests(_opened(url))
    ]
    _emit(found, columns, form)


@catalog.command()
@click.option("--store", help="Only of this store: its path or uuid.")
@options.catalog
@options.rows
def ledger(store: str | None, url: str | None, form: Form) -> None:
    """The ledger entries of all stores."""
    from dynfrsdb.catalog import report

    _emit(report.ledger(_opened(url), store), _LEDGER, form)


@catalog.command()
@options.catalog
@options.rows
def holds(url: str | None, form: Form) -> None:
    """The holds of all stores; the reasons are in the stores only."""
    from dynfrsdb.catalog import report

    _emit(report.holds(_opened(url)), _HOLDS, form)


@catalog.command()
@options.catalog
@options.rows
def sources(url: str | None, form: Form) -> None:
    """The tables and queries that samples came from."""
    from dynfrsdb.catalog import report

    _emit(report.sources(_opened(url)), _SOURCES, form)


@catalog.command()
@click.argument("request", required=False)
@options.catalog
@options.rows
def export(request: str | None, url: str | None, form: Form) -> None:
    """Evidence for an auditor: a request, or all, store by store, with ledger entries and stages."""
    from dynfrsdb import sql
    from dynfrsdb.catalog import report
    from dynfrsdb.receipt import now

    opened = _opened(url)
    found = report.requests(opened, request)
    if form.csv:
        emit_rows(report.lines(found), lambda: "", form)
        return
    document = {"catalog": sql.shown(opened.url), "exported": now(), "requests": found}
    emit(document, lambda: "", as_json=True)


def _emit(found: list[dict[str, Any]], columns: tuple[str, ...], form: Form) -> None:
    emit_rows(
        found, lambda: rows(columns, [[_short(name, each.get(name)) for name in columns] for each in found]), form
    )


def _short(column: str, value: Any) -> Any:
    """A value as a terminal has room for it."""
    if column in ("hash", "subject", "subject_hash") and value:
        return value[:8]
    return value.replace("T", " ")[:19] if column in _TIMES and value else value


def _show_request(ctx: click.Context, found: dict[str, Any], as_json: bool) -> None:
    def drawing() -> RenderableType:
        from rich.console import Group

        about = {name: found[name] for name in ("request", "made", "state", "subject") if found[name]}
        lines = [[_short(name, part[name]) for name in _OUTCOMES] for part in found["stores"]]
        why = {Path(part["store"]).name: part["why"] for part in found["stores"] if part["why"]}
        return Group(properties(about), "", rows(_OUTCOMES, lines), properties(why))

    emit(found, drawing, as_json)
    ctx.exit(_CODES[found["state"]])


def _contacts(found: list[Contact], as_json: bool) -> int:
    """Print what came of contacts; returns the exit code."""
    result = [each.as_dict() for each in found]
    for each in found:
        if each.state == "restored":
            note(f"'{each.store}': {each.why}")
    emit(result, lambda: rows(_CONTACTS, [[each[column] for column in _CONTACTS] for each in result]), as_json)
    states = {each.state for each in found}
    return UNREACHABLE if "unreachable" in states else REFUSED if "a copy" in states else 0


VERBS = (catalog,)
