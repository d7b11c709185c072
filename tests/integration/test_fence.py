"""Fencing tokens in a real PostgreSQL: a newer holder is let in and raises the mark, an older one is refused, whatever overlaps."""
import cells
import postgres
from runner import test

FENCE_SQL = cells.TOP / "client-c" / "fence" / "fence.sql"


def refused(session, sql, state="HF001"):
    try:
        session.run(sql)
    except postgres.SqlError as e:
        assert f"ERROR:  {state}:" in str(e), e
        return str(e)
    raise AssertionError(f"was let in: {sql}")


def guarded(session, token, value, shared="false"):
    """One transaction: the check, then the write."""
    session.run("BEGIN")
    try:
        session.run(f"SELECT holdfast_fence('accounts', {token}, {shared})")
    except postgres.SqlError:
        session.run("ROLLBACK")
        raise
    session.run(f"UPDATE accounts SET owner = '{value}'")
    session.run("COMMIT")


def marks(session):
    return session.run("SELECT exclusive, highest FROM holdfast_fence WHERE name = 'accounts'")


def late(session, token, value, shared="false"):
    try:
        guarded(session, token, value, shared)
    except postgres.SqlError as e:
        assert "HF001" in str(e) and "stale fencing token" in str(e), e
        return
    raise AssertionError(f"token {token} was let in")


@test(own=True, timeout=60)
def fencing_in_postgresql(_server):
    with postgres.Postgres() as pg:
        pg.run_file(FENCE_SQL)
        pg.run_file(FENCE_SQL)  # again does no harm
        old, new = pg.session(), pg.session()
        old.run("CREATE TABLE accounts (owner text); INSERT INTO accounts VALUES ('nobody')")

        guarded(old, 10, "ten")
        guarded(old, 10, "ten again")
        guarded(new, 20, "twenty")
        late(old, 10, "ten, late")
        assert new.run("SELECT owner FROM accounts") == ["twenty"]

        # A new holder's first act raises the mark; what it then reads, nobody before it changes any more.
        new.run("SELECT holdfast_fence('accounts', 30)")
        assert new.run("SELECT owner FROM accounts") == ["twenty"]
        late(old, 20, "twenty, late")
        assert marks(new) == ["30|30"]

        # Shared holders hold together; an exclusive one from before any of them is refused, as is a shared one from before an exclusive one.
        guarded(old, 35, "shared", "true")
        guarded(new, 33, "shared too", "true")
        late(old, 30, "thirty, late")
        late(old, 29, "shared, late", "true")
        assert marks(new) == ["30|35"]
        assert new.run("SELECT owner FROM accounts") == ["shared too"]

        for bad in ("'accounts', 0", "'accounts', -1", "'accounts', NULL", "NULL, 5"):
            refused(old, f"SELECT holdfast_fence({bad})", "22023")
        refused(old, "SELECT holdfast_fence('', 5)", "23514")


@test(own=True, timeout=60)
def fencing_in_overlapping_transactions(_server):
    with postgres.Postgres() as pg:
        pg.run_file(FENCE_SQL)
        old, new = pg.session(), pg.session()
        old.run("CREATE TABLE accounts (owner text); INSERT INTO accounts VALUES ('nobody')")

        # The old one has passed the check: the new one waits until its transaction is over, and sees what it wrote.
        old.run("BEGIN; SELECT holdfast_fence('accounts', 10); UPDATE accounts SET owner = 'ten'")
        new.run("BEGIN")
        new.start("SELECT holdfast_fence('accounts', 20)")
        new.waits()
        old.run("COMMIT")
        new.answer()
        assert new.run("SELECT owner FROM accounts") == ["ten"]
        # And the other way: the old one waits at the check, and is then refused.
        old.run("BEGIN")
        old.start("SELECT holdfast_fence('accounts', 10)")
        old.waits()
        new.run("COMMIT")
        try:
            old.answer()
        except postgres.SqlError as e:
            assert "HF001" in str(e), e
        else:
            raise AssertionError("the old one was let in beside the new one")
        old.run("ROLLBACK")

        # The very first two tokens meet in an empty table.
        old.run("BEGIN; SELECT holdfast_fence('other', 10)")
        new.start("SELECT holdfast_fence('other', 20)")
        new.waits()
        old.run("COMMIT")
        new.answer()
        refused(old, "SELECT holdfast_fence('other', 10)")

        # One that looked at an old snapshot first cannot commit over a later holder.
        old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT owner FROM accounts")
        new.run("SELECT holdfast_fence('accounts', 30)")
        refused(old, "SELECT holdfast_fence('accounts', 20)", "40001")
        old.run("ROLLBACK")

        # Shared holders whose tokens are known do not wait for each other.
        old.run("SELECT holdfast_fence('accounts', 41, true)")
        old.run("BEGIN; SELECT holdfast_fence('accounts', 41, true)")
        new.run("BEGIN; SELECT holdfast_fence('accounts', 40, true)")
        new.run("COMMIT")
        old.run("COMMIT")
