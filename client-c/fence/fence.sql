-- fence.sql: fencing tokens for PostgreSQL: one table, one function. psql -f fence.sql, again as often as you like.
--
-- In every transaction that touches what the lock guards, first of all:
--
--     BEGIN;
--     SELECT holdfast_fence('accounts', 4711);            -- raises the mark, or fails with SQLSTATE HF001
--     UPDATE accounts SET ...;
--     COMMIT;
--
-- The row of the mark stays locked until the transaction ends, so nobody with another token gets between the check and the commit. At READ COMMITTED, what is
-- read after the check is the newest there is; at REPEATABLE READ or SERIALIZABLE a transaction that was overtaken fails with 40001: try it again.

CREATE TABLE IF NOT EXISTS holdfast_fence (
    name      text PRIMARY KEY CHECK (name <> ''),
    exclusive bigint NOT NULL CHECK (exclusive >= 0),  -- highest token of an exclusive holder that was let in
    highest   bigint NOT NULL CHECK (highest >= exclusive)  -- highest of all
);

-- is_shared: the lock is held in shared mode.
CREATE OR REPLACE FUNCTION holdfast_fence(lock_name text, token bigint, is_shared boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    seen holdfast_fence%ROWTYPE;
BEGIN
    IF token IS NULL OR token < 1 OR lock_name IS NULL OR is_shared IS NULL THEN
        RAISE EXCEPTION 'no fencing token or no name' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Shared holders whose token is known already do not wait for each other.
    IF is_shared THEN
        PERFORM 1 FROM holdfast_fence f WHERE f.name = lock_name AND f.highest >= token AND f.exclusive <= token FOR SHARE;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO holdfast_fence AS f (name, exclusive, highest)
        VALUES (lock_name, CASE WHEN is_shared THEN 0 ELSE token END, token)
        ON CONFLICT (name) DO UPDATE
            SET exclusive = greatest(f.exclusive, excluded.exclusive), highest = greatest(f.highest, excluded.highest)
            WHERE token >= CASE WHEN is_shared THEN f.exclusive ELSE f.highest END;
    IF NOT FOUND THEN
        SELECT * INTO seen FROM holdfast_fence f WHERE f.name = lock_name;
        RAISE EXCEPTION 'stale fencing token % for "%": a later holder was here', token, lock_name
            USING ERRCODE = 'HF001', DETAIL = format('highest exclusive token %s, highest of all %s', seen.exclusive, seen.highest);
    END IF;
END
$$;
