"""`shards`: the buckets of a directory, and the bucket of each tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from afterturn.config import StoreUrl
from afterturn.errors import InvalidInput, StoreError, postgres_missing
from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, Invocation, command, help_when_alone, shared_options
from afterturn.hosts.cli.output import print_document, print_table, progress
from afterturn.runtime.clock import SystemClock
from afterturn.validation import check_name

if TYPE_CHECKING:
    from afterturn.stores.postgres.shards import Directory

_HERE = "afterturn.hosts.cli.commands.shards"


@click.group(
    "shards",
    cls=Group,
    sections={"Commands": {"list": f"{_HERE}:list_all", "add": f"{_HERE}:add", "move": f"{_HERE}:move"}},
    examples="""
    $ export AFTERTURN_STORE='postgresql://memory@db.example/app?directory=shards'
    $ afterturn shards add one 'postgresql://memory@db.example/app?schema=bucket_1'
    $ afterturn shards list
    $ afterturn shards move acme two
    """,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def shards(context: click.Context) -> None:
    """Spread tenants over several stores on PostgreSQL servers."""
    help_when_alone(context)


@command("list", examples="$ afterturn shards list")
def list_all(invocation: Invocation) -> None:
    """List the buckets and the tenants in them."""
    directory = _directory(invocation)
    buckets, tenants = directory.buckets(), directory.tenants()
    if invocation.json:
        found = [{"name": one.name, "url": str(StoreUrl(one.url))} for one in buckets]
        named = [{"tenant": tenant, "bucket": bucket, "moves": moves} for tenant, bucket, moves in tenants]
        print_document({"buckets": found, "tenants": named})
        return
    rows = [
        (one.name, str(sum(bucket == one.name for _, bucket, _ in tenants)), str(StoreUrl(one.url))) for one in buckets
    ]
    print_table(("bucket", "tenants", "store"), rows)


@command("add", examples="$ afterturn shards add two 'postgresql://memory@db2.example/app?schema=bucket_2'")
@click.argument("name")
@click.argument("url")
def add(invocation: Invocation, name: str, url: str) -> None:
    """Add a bucket: a store in a schema of its own.

    The schema is created if the role may do that. Tenants that are known already stay where they are. Only the first
    bucket may have content.
    """
    from afterturn.stores.postgres.shards import add_bucket

    bucket = add_bucket(_directory(invocation), check_name(name, "bucket"), url, invocation.config(), SystemClock())
    if invocation.json:
        print_document({"name": bucket.name, "url": str(StoreUrl(bucket.url))})
    else:
        click.echo(f"Added the bucket {bucket.name}.")


@command(
    "move",
    examples="""
    $ afterturn shards move acme two
    $ afterturn shards move acme two --cancel
    """,
)
@click.argument("name", metavar="TENANT")
@click.argument("bucket")
@click.option("--cancel", is_flag=True, help="Give up a move that has not ended, and delete what was copied.")
def move(invocation: Invocation, name: str, bucket: str, *, cancel: bool) -> None:
    """Move a tenant to another bucket while it is in use.

    Its hosts wait for the last step and follow by themselves. Stopped at any moment, the same command continues.
    """
    directory = _directory(invocation)
    tenant = check_name(name, "tenant")
    from afterturn.stores.postgres.shards import cancel_tenant_move, move_tenant

    if cancel:
        cancel_tenant_move(directory, tenant, bucket, invocation.config(), SystemClock())
        click.echo(f"{tenant} stays where it is. What was copied to {bucket} is deleted.")
        return
    with progress("Copying, then comparing rows") as report:
        tables = move_tenant(directory, tenant, bucket, invocation.config(), SystemClock(), progress=report)
    if not all(table.is_equal for table in tables):
        differing = ", ".join(table.source.name for table in tables if not table.is_equal)
        raise StoreError(f"{tenant} was not moved: after copying, these tables differ: {differing}. Run it again.")
    rows = sum(table.source.rows for table in tables)
    if invocation.json:
        print_document({"tenant": tenant, "bucket": bucket, "rows": rows})
    else:
        click.echo(f"{tenant} is in the bucket {bucket} ({rows:,} rows were copied).")


def _directory(invocation: Invocation) -> Directory:
    directory = find_directory(invocation)
    if directory is None:
        raise InvalidInput(
            "The store is not a directory of shards. Name one with --store, such as "
            "postgresql://user@host/database?directory=shards or postgresql://?directory=/path/of/shards.json."
        )
    return directory


def find_directory(invocation: Invocation) -> Directory | None:
    """None if the store is another one. Connects to nothing yet."""
    url = invocation.path()
    if not isinstance(url, StoreUrl) or url.directory is None:
        return None
    try:
        from afterturn.stores.postgres.shards import open_directory
    except ImportError as error:
        raise postgres_missing(error) from error
    return open_directory(url, invocation.config(), SystemClock())
