-- Marks of Ringfence guards in PostgreSQL 12 and later, for services in any language.
--
-- Run it once per database as any migration; running it again changes nothing. It creates one table
-- and its functions in the first schema of the search path, and they stay bound to that schema.
--
--   BEGIN;
--   SELECT ringfence_admit('bank/balance', 42);   -- first: takes the mark's lock until the commit
--   UPDATE balance SET amount = amount + 1;
--   COMMIT;
--
-- Send nothing behind BEGIN and ringfence_admit before both are answered, unless all of it is one
-- pipeline with a single Sync: if the message that opens the transaction fails, at a statement timeout
-- or a cancel request, what was sent behind it runs in a transaction of its own, and commits. A script
-- of psql needs --set=ON_ERROR_STOP=1 for the same reason. Where that cannot be relied on, the table
-- itself can refuse what was not admitted in the same transaction:
--
--   CREATE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON balance
--       FOR EACH STATEMENT EXECUTE FUNCTION ringfence_guarded('bank/balance');
--
-- A partitioned table needs it on each of its partitions, too: a statement that names a partition
-- does not fire the trigger of the table above it.
--
-- A new holder, before its first read:
--
--   SELECT ringfence_advance('bank/balance', 42);
--
-- What is refused raises an error, so that the transaction cannot be committed by oversight:
--
--   SQLSTATE  message begins with   meaning
--   RF001     STALE_TOKEN           a later grant has been here: stop the work, the lease is lost
--   RF002     WRONG_LEASE           the fence is of another lease
--   RF003     MISSING_FENCE         no resource or no token was given
--   RF004     MALFORMED_FENCE       no lease name, or no token: 1 to 9223372036854775807
--   RF005     MARK_STAYS            somebody tried to lower, rename or delete a mark
--   RF006     TOKEN_TOO_HIGH        ringfence_admit or ringfence_advance was shown a token above
--                                   (now + 1 day) * 2^20, with this server's clock in seconds since
--                                   1970, and above the mark: it was made up, or the clock is more
--                                   than a day behind. It does not say that the lease is lost
--
-- Where tokens do not follow the clock, SET ringfence.ceiling = 'off' switches RF006 off for a session,
-- ALTER ROLE or ALTER DATABASE for all; a number in its place is the ceiling itself.
--
-- 40001 and 40P01 say, as always, that the whole transaction is to be repeated.
--
-- The functions run with the rights of whoever calls them, who needs SELECT, INSERT and UPDATE on
-- ringfence_marks. Not DELETE: no row of it is ever deleted.

-- One row per lease. The low fill factor leaves room for the row's next versions in its own page, so
-- that writing a mark touches no index. It has no CHECK, since the server would prepare it anew for
-- every write of a mark; the functions check what they insert.
CREATE TABLE IF NOT EXISTS ringfence_marks (
    name text COLLATE "C" PRIMARY KEY,
    mark bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A table of that name that was there before this file, without the key, holds several marks of one lease.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = 'ringfence_marks'::regclass AND indisprimary AND indnatts = 1
            AND attname = 'name'
    ) OR NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'ringfence_marks'::regclass AND attname = 'mark'
            AND atttypid = 'bigint'::regtype AND attnotnull
    ) THEN
        RAISE EXCEPTION
            'WRONG_SHAPE: ringfence_marks has another shape; expected PRIMARY KEY (name), mark bigint NOT NULL'
            USING ERRCODE = 'invalid_table_definition',
                  HINT = 'Rename that table, run this again, and raise each mark with ringfence_advance_to.';
    END IF;
END
$$;

COMMENT ON TABLE ringfence_marks IS
    'The greatest fencing token that each lease has shown. Marks outlive the data they guard.';

CREATE OR REPLACE FUNCTION ringfence_mark_stays() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'MARK_STAYS: a mark of ringfence_marks can only grow, and outlives its data'
        USING ERRCODE = 'RF005',
              HINT = 'Delete the data and keep the mark; raise it with ringfence_advance_to.';
END
$$;

DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_trigger
        WHERE tgrelid = 'ringfence_marks'::regclass AND tgname = 'ringfence_marks_only_grow'
    ) THEN
        CREATE TRIGGER ringfence_marks_only_grow BEFORE UPDATE ON ringfence_marks
            FOR EACH ROW WHEN (NEW.mark < OLD.mark OR NEW.name <> OLD.name)
            EXECUTE FUNCTION ringfence_mark_stays();
        CREATE TRIGGER ringfence_marks_stay BEFORE DELETE ON ringfence_marks
            FOR EACH ROW EXECUTE FUNCTION ringfence_mark_stays();
        CREATE TRIGGER ringfence_marks_stay_all BEFORE TRUNCATE ON ringfence_marks
            FOR EACH STATEMENT EXECUTE FUNCTION ringfence_mark_stays();
    END IF;
END
$$;

-- Refuses a token that was overtaken.
CREATE OR REPLACE FUNCTION ringfence_stale(lease text, current_mark bigint, offered bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'STALE_TOKEN: token % of lease "%" was overtaken by token %',
        offered, lease, current_mark
        USING ERRCODE = 'RF001',
              DETAIL = 'mark=' || current_mark,
              HINT = 'This is final for that grant: stop the work, its lease is lost.';
END
$$;

-- What the functions below have in common, and what the guard in Rust calls, whose types have
-- checked name and token: to set and reset a search path, and to compare a numeric, would cost as
-- much as the write itself.
--
-- The mark is written also when it is equal: only a write keeps the next grant out until the commit,
-- at every isolation level.
CREATE OR REPLACE FUNCTION ringfence_raise(lease text, offered bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    current_mark bigint;
BEGIN
    LOOP
        UPDATE ringfence_marks SET mark = offered WHERE name = lease AND mark <= offered;
        IF FOUND THEN
            RETURN offered;
        END IF;
        SELECT mark INTO current_mark FROM ringfence_marks WHERE name = lease;
        IF current_mark > offered THEN
            PERFORM ringfence_stale(lease, current_mark, offered);
        END IF;
        IF current_mark IS NULL THEN
            IF lease COLLATE "C" !~ '^[A-Za-z0-9._~:@/-]{1,255}$' THEN
                RAISE EXCEPTION 'MALFORMED_FENCE: "%" is no lease name', left(lease, 64)
                    USING ERRCODE = 'RF004';
            END IF;
            INSERT INTO ringfence_marks (name, mark) VALUES (lease, offered)
                ON CONFLICT (name) DO NOTHING;
            IF FOUND THEN
                RETURN offered;
            END IF;
        END IF;
        -- Somebody else made the row, or moved it, between two statements: look again.
    END LOOP;
END
$$;

-- The token as a bigint. `token` is a numeric, so that a number beyond bigint, as other systems may hand
-- out, gets the error below instead of an overflow.
CREATE OR REPLACE FUNCTION ringfence_checked(resource text, token numeric) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF resource IS NULL OR token IS NULL THEN
        RAISE EXCEPTION 'MISSING_FENCE: this is guarded by lease "%"; show the token of its grant',
            coalesce(resource, '(none)') USING ERRCODE = 'RF003';
    END IF;
    IF token NOT BETWEEN 1 AND 9223372036854775807 OR token <> trunc(token) THEN
        RAISE EXCEPTION
            'MALFORMED_FENCE: the token % is out of range; a token is 1 to 9223372036854775807', token
            USING ERRCODE = 'RF004';
    END IF;
    RETURN token::bigint;
END
$$;

-- Admits the token for the rest of the transaction, or raises. Must come first in it.
CREATE OR REPLACE FUNCTION ringfence_admit(resource text, token numeric) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    offered bigint := ringfence_checked(resource, token);
    setting text := coalesce(current_setting('ringfence.ceiling', true), '');
    ceiling numeric := CASE setting
        WHEN 'off' THEN 9223372036854775807
        WHEN '' THEN (floor(extract(epoch FROM clock_timestamp()))::bigint + 86400) * 1048576
        ELSE setting::numeric
    END;
BEGIN
    -- A mark only grows: one that has reached the token stays there, and is no reason to refuse it.
    IF offered > ceiling AND NOT EXISTS (
        SELECT FROM ringfence_marks WHERE name = resource AND mark >= offered
    ) THEN
        RAISE EXCEPTION 'TOKEN_TOO_HIGH: token % of lease "%" is above the ceiling %',
            offered, resource, ceiling
            USING ERRCODE = 'RF006',
                  DETAIL = 'ceiling=' || ceiling,
                  HINT = 'It was made up, or the clock of this server is behind: set the clock, or '
                      'ringfence.ceiling where tokens do not follow it. Nothing was written.';
    END IF;
    RETURN ringfence_raise(resource, offered);
END
$$;

-- Tells the store that this is the grant in force. A new holder calls it, and commits, before its
-- first read; advancing twice changes nothing.
CREATE OR REPLACE FUNCTION ringfence_advance(resource text, token numeric) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT ringfence_admit(resource, token)
$$;

-- Raises the mark to `floor` if it is lower, and answers the mark. After a restore, and after any
-- loss of the newest commits, call it with the lease's newest token before writes are served. It has no
-- ceiling: a mark that it raised too far stays there.
CREATE OR REPLACE FUNCTION ringfence_advance_to(resource text, floor numeric) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    current_mark bigint;
BEGIN
    SELECT mark INTO current_mark FROM ringfence_marks WHERE name = resource FOR UPDATE;
    IF current_mark >= floor THEN
        RETURN current_mark;
    END IF;
    RETURN ringfence_raise(resource, ringfence_checked(resource, floor));
END
$$;

-- The token of a fence `NAME#TOKEN` as a holder shows it, if it is one of the lease `resource`:
--
--   SELECT ringfence_admit('bank/balance', ringfence_token('bank/balance', $1));
CREATE OR REPLACE FUNCTION ringfence_token(resource text, fence text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    parts text[];
BEGIN
    IF fence IS NULL THEN
        RAISE EXCEPTION 'MISSING_FENCE: this is guarded by lease "%"; show the fence of its grant',
            resource USING ERRCODE = 'RF003';
    END IF;
    parts := regexp_match(fence COLLATE "C", '^([A-Za-z0-9._~:@/-]{1,255})#([1-9][0-9]{0,18})$');
    IF parts IS NULL OR parts[2]::numeric > 9223372036854775807 THEN
        RAISE EXCEPTION 'MALFORMED_FENCE: "%" is no fence; a fence is NAME#TOKEN', left(fence, 64)
            USING ERRCODE = 'RF004';
    END IF;
    IF parts[1] IS DISTINCT FROM resource THEN
        RAISE EXCEPTION 'WRONG_LEASE: the fence is of lease "%", but this is guarded by lease "%"',
            parts[1], resource USING ERRCODE = 'RF002';
    END IF;
    RETURN parts[2]::numeric;
END
$$;

-- For a trigger on a table that only the holder of one lease may write: refuses a statement of a
-- transaction that has not admitted a fence of that lease. Admit outside of savepoints: it is the mark
-- that the transaction itself has written which is looked for.
CREATE OR REPLACE FUNCTION ringfence_guarded() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM ringfence_marks
        WHERE name = TG_ARGV[0] AND xmin::text::bigint = txid_current() % 4294967296;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'MISSING_FENCE: table "%" is guarded by lease "%", and this transaction has '
            'not admitted a fence of it', TG_TABLE_NAME, coalesce(TG_ARGV[0], '(none)')
            USING ERRCODE = 'RF003',
                  HINT = 'Call ringfence_admit first in the transaction, outside of savepoints.';
    END IF;
    RETURN NULL;
END
$$;
