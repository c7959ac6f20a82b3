-- Marks of Ringfence guards in PostgreSQL 12 and later, for services in any language.
--
-- Run it once per database as any migration; running it again changes nothing. It creates the schema
-- `ringfence` with one table, `ringfence.marks`, and its functions. A database has no other marks: all
-- of its services share these, so two leases in it need two names.
--
-- Always write the schema. A name without it is looked for in the session's search path, where another
-- schema or a temporary table can stand before it; nothing in this file is.
--
--   BEGIN;
--   SELECT ringfence.admit('bank/balance', 42);   -- first: takes the mark's lock until the commit
--   UPDATE balance SET amount = amount + 1;
--   COMMIT;
--
-- Send nothing behind BEGIN and ringfence.admit before both are answered, unless all of it is one
-- pipeline with a single Sync: if the message that opens the transaction fails, at a statement timeout
-- or a cancel request, what was sent behind it runs in a transaction of its own, and commits. A script
-- of psql needs --set=ON_ERROR_STOP=1 for the same reason. Where that cannot be relied on, the table
-- itself can refuse what was not admitted in the same transaction:
--
--   CREATE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON balance
--       FOR EACH STATEMENT EXECUTE FUNCTION ringfence.guarded('bank/balance');
--
-- A partitioned table needs it on each of its partitions, too, and a table with INHERITS children on each of
-- these: a statement that names one of them does not fire the trigger of the table above it.
--
-- A PREPARE TRANSACTION keeps the mark until COMMIT PREPARED or ROLLBACK PREPARED, also when its session is
-- gone and the server was restarted, and the next holder waits for it: see pg_prepared_xacts.
--
-- A new holder, before its first read:
--
--   SELECT ringfence.advance('bank/balance', 42);
--
-- What is refused raises an error, so that the transaction cannot be committed by oversight:
--
--   SQLSTATE  message begins with   meaning
--   RF001     STALE_TOKEN           a later grant has been here: stop the work, the lease is lost
--   RF002     WRONG_LEASE           the fence is of another lease
--   RF003     MISSING_FENCE         no resource or no token was given
--   RF004     MALFORMED_FENCE       no lease name, or no token: 1 to 9223372036854775807
--   RF005     MARK_STAYS            an attempt to lower, rename or delete a mark; or a trigger that this
--                                   file has not made has kept a mark as it was
--   RF006     TOKEN_TOO_HIGH        ringfence.admit or ringfence.advance was shown a token above
--                                   (now + 1 day) * 2^20, with this server's clock in seconds since
--                                   1970, and above the mark: it was made up, or the clock is more
--                                   than a day behind. It does not say that the lease is lost
--
-- Where tokens do not follow the clock, SET ringfence.ceiling = 'off' switches RF006 off for a session,
-- ALTER ROLE or ALTER DATABASE for all; a number in its place is the ceiling itself.
--
-- 40001 and 40P01 say, as always, that the whole transaction is to be repeated; so does the 40001 of this file
-- where another session runs it and the transaction is REPEATABLE READ or SERIALIZABLE.
--
-- This file itself fails with
--
--   42P16     WRONG_SHAPE           ringfence.marks was not made by this file
--   42P07     OTHER_MARKS           there are marks in other schemas as well: a service that uses them
--                                   would admit a token that is stale here
--   42501     NOT_OWNED             the schema `ringfence`, what is in it, or what an earlier release has
--                                   made belongs to a role that is not trusted, and could be changed by it
--
-- Trusted are the role that runs this file, and superusers. To run it again as another role, a superuser
-- too, SET ROLE to the owner before.
--
-- An earlier release made a table `ringfence_marks` in the first schema of the search path. Where there
-- is one such table, this file moves it, with its functions and the triggers that call them. Services of
-- that release fail from then on, and write nothing. Once ringfence.marks is there, objects of those names
-- that belong to others are of no account.
--
-- Leave ringfence.marks out of publications, or make sure that nothing raises marks at the subscriber: there
-- a row whose mark is below the one in the table is refused with RF005, and the subscription stops. Were it
-- taken, a token that is stale would be admitted.
--
-- The functions run with the rights of their caller, who needs SELECT, INSERT and UPDATE on
-- ringfence.marks. Not DELETE: no row of it is ever deleted. Nor TRIGGER, which GRANT ALL contains: a trigger
-- runs with the rights of each caller. To run this file takes CREATE on the
-- database, or, where the schema is there, to own it.
--
-- It is one statement, so that it happens as a whole or not at all, however a client sends it. In it names
-- without a schema are those of pg_catalog, whatever the session's search path says, which comes back
-- behind it: other roles may be able to create in that path, and what they put there would run with the
-- rights of the role that runs this file.

DO $ringfence$
DECLARE
    -- These types are looked for before the path is set.
    session_path pg_catalog.text;
    trusted pg_catalog.oid[];
    homes pg_catalog.oid[];
    one pg_catalog.record;
    others_ran boolean;
BEGIN
    session_path := pg_catalog.current_setting('search_path');
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    -- Services that start together install together; `CREATE ... IF NOT EXISTS` alone fails for all but one
    -- of them then. The number is "ringfenc" in ASCII.
    others_ran := NOT pg_try_advisory_xact_lock(8244241983257013859);
    IF others_ran THEN
        PERFORM pg_advisory_xact_lock(8244241983257013859);
    END IF;
    -- In these a statement keeps the snapshot that it began with, so that what another run has made meanwhile
    -- is there and cannot be seen.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') AND (
        others_ran OR to_regclass('ringfence.marks') IS NOT NULL
            AND NOT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('ringfence.marks'))
    ) THEN
        RAISE EXCEPTION 'another session has run this migration meanwhile; nothing was changed'
            USING ERRCODE = 'serialization_failure',
                  HINT = 'Run it again.';
    END IF;

    -- Not the roles that were granted to this one: up to PostgreSQL 14 a role can grant itself to any other.
    SELECT array_agg(oid) INTO trusted FROM pg_roles WHERE rolsuper OR rolname = current_user;

    IF to_regnamespace('ringfence') IS NULL THEN
        CREATE SCHEMA ringfence;
        -- It lets names be found, no more; each table has rights of its own.
        GRANT USAGE ON SCHEMA ringfence TO PUBLIC;
    END IF;

    -- Moves what an earlier release has made, and refuses a second table of marks.
    SELECT array_agg(DISTINCT home) INTO homes FROM (
        SELECT relnamespace AS home, relowner AS owner FROM pg_class
            WHERE relname = 'ringfence_marks' AND relkind IN ('r', 'p') AND relpersistence <> 't'
        UNION ALL
        SELECT pronamespace, proowner FROM pg_proc
            WHERE proname IN ('ringfence_admit', 'ringfence_raise', 'ringfence_guarded')
                AND NOT pg_is_other_temp_schema(pronamespace) AND pronamespace <> pg_my_temp_schema()
    ) AS made WHERE owner = ANY (trusted);

    -- Refuses what a role that is not trusted could change later, or has made in wait for this.
    SELECT * INTO one FROM (
        SELECT 'schema ringfence' AS what, nspowner AS owner FROM pg_namespace WHERE nspname = 'ringfence'
        UNION ALL
        SELECT format('%s', oid::regclass), relowner FROM pg_class
            WHERE relnamespace = 'ringfence'::regnamespace
        UNION ALL
        SELECT format('function %s', oid::regprocedure), proowner FROM pg_proc
            WHERE pronamespace = 'ringfence'::regnamespace
        UNION ALL
        SELECT format('trigger %I of ringfence.marks', tgname), proowner
            FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
            WHERE tgrelid = to_regclass('ringfence.marks') AND NOT tgisinternal
        UNION ALL
        SELECT format('table %s', oid::regclass), relowner FROM pg_class
            WHERE relname = 'ringfence_marks' AND relkind IN ('r', 'p') AND relpersistence <> 't'
                AND homes IS NULL AND to_regclass('ringfence.marks') IS NULL
        UNION ALL
        SELECT format('function %s', oid::regprocedure), proowner FROM pg_proc
            WHERE proname IN ('ringfence_admit', 'ringfence_raise', 'ringfence_guarded')
                AND NOT pg_is_other_temp_schema(pronamespace) AND pronamespace <> pg_my_temp_schema()
                AND homes IS NULL AND to_regclass('ringfence.marks') IS NULL
    ) AS adopted WHERE owner <> ALL (trusted) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'NOT_OWNED: % belongs to role "%"; expected role "%", which runs this, or a superuser',
            one.what, pg_get_userbyid(one.owner), current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'If that role has run this file before, and is trusted, run it as that role (SET ROLE). '
                      'Else see what it has made, and drop it, or give it to the role that runs this with '
                      'ALTER ... OWNER TO.';
    END IF;
    SELECT grantee INTO one FROM pg_namespace, aclexplode(nspacl)
        WHERE nspname = 'ringfence' AND privilege_type = 'CREATE' AND grantee <> ALL (trusted) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'NOT_OWNED: % may create in schema ringfence, a function ringfence.admit of its own for '
            'example; expected CREATE for its owner alone',
            CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE format('role "%s"', pg_get_userbyid(one.grantee)) END
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'See what is in the schema, then REVOKE CREATE ON SCHEMA ringfence from it, and run this '
                      'again.';
    END IF;

    IF homes IS NOT NULL THEN
        IF cardinality(homes) > 1 OR to_regclass('ringfence.marks') IS NOT NULL THEN
            RAISE EXCEPTION 'OTHER_MARKS: there are tables ringfence_marks, or functions of them, in %; '
                'expected marks in ringfence.marks alone',
                (SELECT string_agg(format('schema %I', nspname), ', ' ORDER BY nspname)
                    FROM pg_namespace WHERE oid = ANY (homes))
                USING ERRCODE = 'duplicate_table',
                      HINT = 'Stop what uses them, keep one of them at most, and drop the others with their '
                          'functions ringfence_*; run this again, then raise each mark to that of the '
                          'dropped table with ringfence.advance_to.';
        END IF;
        FOR one IN
            SELECT proname AS name, pg_get_function_identity_arguments(oid) AS arguments,
                CASE proname WHEN 'ringfence_raise' THEN 'raise_mark' ELSE substr(proname, 11) END AS renamed
            FROM pg_proc
            WHERE pronamespace = homes[1] AND proowner = ANY (trusted)
                AND proname IN ('ringfence_admit', 'ringfence_advance', 'ringfence_advance_to',
                    'ringfence_token', 'ringfence_guarded', 'ringfence_raise', 'ringfence_stale',
                    'ringfence_checked', 'ringfence_mark_stays')
        LOOP
            EXECUTE format('ALTER FUNCTION %s.%I(%s) SET SCHEMA ringfence',
                homes[1]::regnamespace, one.name, one.arguments);
            EXECUTE format('ALTER FUNCTION ringfence.%I(%s) RENAME TO %I',
                one.name, one.arguments, one.renamed);
        END LOOP;
        IF EXISTS (
            SELECT FROM pg_class WHERE relnamespace = homes[1] AND relname = 'ringfence_marks'
                AND relkind IN ('r', 'p') AND relowner = ANY (trusted)
        ) THEN
            EXECUTE format('ALTER TABLE %s.ringfence_marks SET SCHEMA ringfence', homes[1]::regnamespace);
            ALTER TABLE ringfence.ringfence_marks RENAME TO marks;
        END IF;
    END IF;

    -- One row per lease. The low fill factor leaves room for the row's next versions in its own page, so
    -- that writing a mark touches no index. It has no CHECK, since the server would prepare it again for
    -- every write of a mark; the functions check what they insert.
    CREATE TABLE IF NOT EXISTS ringfence.marks (
        name text COLLATE "C" PRIMARY KEY,
        mark bigint NOT NULL
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

    -- A table that was there before: without the key it holds several marks of one lease, unlogged it loses
    -- them in a crash, and row security hides them from some roles.
    IF NOT EXISTS (
        SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = 'ringfence.marks'::regclass AND indisprimary AND indnatts = 1
            AND attname = 'name'
    ) OR NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'ringfence.marks'::regclass AND attname = 'mark'
            AND atttypid = 'bigint'::regtype AND attnotnull
    ) OR NOT EXISTS (
        SELECT FROM pg_class
        WHERE oid = 'ringfence.marks'::regclass AND relkind = 'r' AND relpersistence = 'p'
            AND NOT relrowsecurity
    ) THEN
        RAISE EXCEPTION
            'WRONG_SHAPE: ringfence.marks has another shape; expected a permanent table with '
            'PRIMARY KEY (name), mark bigint NOT NULL and no row security'
            USING ERRCODE = 'invalid_table_definition',
                  HINT = 'Rename that table, run this again, and raise each mark with ringfence.advance_to.';
    END IF;

    COMMENT ON TABLE ringfence.marks IS
        'The greatest fencing token that each lease has shown. Marks outlive the data they guard.';

    CREATE OR REPLACE FUNCTION ringfence.mark_stays() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        RAISE EXCEPTION 'MARK_STAYS: a mark of ringfence.marks can only grow, and outlives its data'
            USING ERRCODE = 'RF005',
                  HINT = 'Delete the data and keep the mark; raise it with ringfence.advance_to.';
    END
    $$;

    -- They fire always: what replication applies, and a session with session_replication_role = replica, would
    -- pass by those that do not. Those of this file alone: what another function does, or another condition
    -- lets pass, is none.
    IF (
        SELECT count(*) FROM pg_trigger
        WHERE tgrelid = 'ringfence.marks'::regclass AND tgfoid = 'ringfence.mark_stays()'::regprocedure
            AND tgenabled = 'A' AND tgattr = '' AND (
                (tgname = 'ringfence_marks_only_grow' AND tgtype = 19 AND pg_get_triggerdef(oid)
                    ~ 'WHEN \(+new\.mark < old\.mark\) OR \(new\.name <> old\.name\)+ EXECUTE')
                OR (tgname = 'ringfence_marks_stay' AND tgtype = 11 AND tgqual IS NULL)
                OR (tgname = 'ringfence_marks_stay_all' AND tgtype = 34 AND tgqual IS NULL)
            )
    ) <> 3 THEN
        FOR one IN
            SELECT tgname AS name FROM pg_trigger WHERE tgrelid = 'ringfence.marks'::regclass AND tgname IN
                ('ringfence_marks_only_grow', 'ringfence_marks_stay', 'ringfence_marks_stay_all')
        LOOP
            EXECUTE format('DROP TRIGGER %I ON ringfence.marks', one.name);
        END LOOP;
        CREATE TRIGGER ringfence_marks_only_grow BEFORE UPDATE ON ringfence.marks
            FOR EACH ROW WHEN (NEW.mark < OLD.mark OR NEW.name <> OLD.name)
            EXECUTE FUNCTION ringfence.mark_stays();
        CREATE TRIGGER ringfence_marks_stay BEFORE DELETE ON ringfence.marks
            FOR EACH ROW EXECUTE FUNCTION ringfence.mark_stays();
        CREATE TRIGGER ringfence_marks_stay_all BEFORE TRUNCATE ON ringfence.marks
            FOR EACH STATEMENT EXECUTE FUNCTION ringfence.mark_stays();
        ALTER TABLE ringfence.marks ENABLE ALWAYS TRIGGER ringfence_marks_only_grow;
        ALTER TABLE ringfence.marks ENABLE ALWAYS TRIGGER ringfence_marks_stay;
        ALTER TABLE ringfence.marks ENABLE ALWAYS TRIGGER ringfence_marks_stay_all;
    END IF;

    -- Refuses a token that is stale, or whose mark was not written.
    CREATE OR REPLACE FUNCTION ringfence.stale(lease text, current_mark bigint, offered bigint)
    RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF current_mark <= offered OR current_mark IS NULL THEN
            RAISE EXCEPTION 'MARK_STAYS: another trigger of ringfence.marks keeps the mark of lease "%" at %, '
                'below token %', lease, coalesce(current_mark::text, 'none'), offered
                USING ERRCODE = 'RF005',
                      HINT = 'Drop that trigger. Nothing was written.';
        END IF;
        RAISE EXCEPTION 'STALE_TOKEN: token % of lease "%" was overtaken by token %',
            offered, lease, current_mark
            USING ERRCODE = 'RF001',
                  DETAIL = 'mark=' || current_mark,
                  HINT = 'This is final for that grant: stop the work, its lease is lost.';
    END
    $$;

    -- What the functions below have in common, and what the guard in Rust calls, whose types have
    -- checked name and token.
    --
    -- The mark is written also when it is equal: only a write keeps the next grant out until the commit,
    -- at every isolation level. Then it is looked at: a trigger of others can write another one, or none.
    CREATE OR REPLACE FUNCTION ringfence.raise_mark(lease text, offered bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        current_mark bigint;
    BEGIN
        -- Another transaction may make the row, or raise its mark, between two statements: then it looks again.
        -- Rows stay, and marks only grow, so that twice is enough.
        FOR attempt IN 1..3 LOOP
            UPDATE ringfence.marks SET mark = offered WHERE name = lease COLLATE "C" AND mark <= offered
                RETURNING mark INTO current_mark;
            IF FOUND THEN
                IF current_mark <> offered THEN
                    PERFORM ringfence.stale(lease, current_mark, offered);
                END IF;
                RETURN offered;
            END IF;
            SELECT mark INTO current_mark FROM ringfence.marks WHERE name = lease COLLATE "C";
            IF current_mark > offered THEN
                PERFORM ringfence.stale(lease, current_mark, offered);
            END IF;
            IF current_mark IS NULL THEN
                IF lease COLLATE "C" !~ '^[A-Za-z0-9._~:@/-]{1,255}$' THEN
                    RAISE EXCEPTION 'MALFORMED_FENCE: "%" is no lease name', left(lease, 64)
                        USING ERRCODE = 'RF004';
                END IF;
                INSERT INTO ringfence.marks (name, mark) VALUES (lease, offered)
                    ON CONFLICT (name) DO NOTHING RETURNING mark INTO current_mark;
                IF FOUND THEN
                    IF current_mark <> offered THEN
                        PERFORM ringfence.stale(lease, current_mark, offered);
                    END IF;
                    RETURN offered;
                END IF;
            END IF;
        END LOOP;
        RETURN ringfence.stale(lease, current_mark, offered);
    END
    $$;

    -- The token as a bigint. `token` is a numeric, so that a number beyond bigint, as other systems may hand
    -- out, gets the error below instead of an overflow.
    CREATE OR REPLACE FUNCTION ringfence.checked(resource text, token numeric) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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
    CREATE OR REPLACE FUNCTION ringfence.admit(resource text, token numeric) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        offered bigint := ringfence.checked(resource, token);
        setting text := coalesce(current_setting('ringfence.ceiling', true), '');
        ceiling numeric := CASE setting
            WHEN 'off' THEN 9223372036854775807
            WHEN '' THEN (floor(extract(epoch FROM clock_timestamp()))::bigint + 86400) * 1048576
            ELSE setting::numeric
        END;
    BEGIN
        -- A mark only grows: one that has reached the token stays there, and is no reason to refuse it.
        IF offered > ceiling AND NOT EXISTS (
            SELECT FROM ringfence.marks WHERE name = resource COLLATE "C" AND mark >= offered
        ) THEN
            RAISE EXCEPTION 'TOKEN_TOO_HIGH: token % of lease "%" is above the ceiling %',
                offered, resource, ceiling
                USING ERRCODE = 'RF006',
                      DETAIL = 'ceiling=' || ceiling,
                      HINT = 'It was made up, or the clock of this server is behind: set the clock, or '
                          'ringfence.ceiling where tokens do not follow it. Nothing was written.';
        END IF;
        RETURN ringfence.raise_mark(resource, offered);
    END
    $$;

    -- Tells the store that this is the grant in force. A new holder calls it, and commits, before its
    -- first read; advancing twice changes nothing.
    CREATE OR REPLACE FUNCTION ringfence.advance(resource text, token numeric) RETURNS bigint
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
        SELECT ringfence.admit(resource, token)
    $$;

    -- Raises the mark to `floor` if it is lower, and answers the mark. After a restore, and after any
    -- loss of the newest commits, call it with the lease's newest token before writes are served. It has no
    -- ceiling: a mark that it raised too far stays there.
    CREATE OR REPLACE FUNCTION ringfence.advance_to(resource text, floor numeric) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        current_mark bigint;
    BEGIN
        SELECT mark INTO current_mark FROM ringfence.marks WHERE name = resource COLLATE "C" FOR UPDATE;
        IF current_mark >= floor THEN
            RETURN current_mark;
        END IF;
        RETURN ringfence.raise_mark(resource, ringfence.checked(resource, floor));
    END
    $$;

    -- The token of a fence `NAME#TOKEN` as a holder shows it, if it is one of the lease `resource`:
    --
    --   SELECT ringfence.admit('bank/balance', ringfence.token('bank/balance', $1));
    CREATE OR REPLACE FUNCTION ringfence.token(resource text, fence text) RETURNS numeric
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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
        IF parts[1] COLLATE "C" IS DISTINCT FROM resource COLLATE "C" THEN
            RAISE EXCEPTION 'WRONG_LEASE: the fence is of lease "%", but this is guarded by lease "%"',
                parts[1], resource USING ERRCODE = 'RF002';
        END IF;
        RETURN parts[2]::numeric;
    END
    $$;

    -- For a trigger on a table that only the holder of one lease may write: refuses a statement of a
    -- transaction that has not admitted a fence of that lease. Admit outside of savepoints: it is the mark
    -- that the transaction itself has written which is looked for.
    CREATE OR REPLACE FUNCTION ringfence.guarded() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        PERFORM FROM ringfence.marks
            WHERE name = TG_ARGV[0] COLLATE "C" AND xmin::text::bigint = txid_current() % 4294967296;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'MISSING_FENCE: table "%" is guarded by lease "%", and this transaction has '
                'not admitted a fence of it', TG_TABLE_NAME, coalesce(TG_ARGV[0], '(none)')
                USING ERRCODE = 'RF003',
                      HINT = 'Call ringfence.admit first in the transaction, outside of savepoints.';
        END IF;
        RETURN NULL;
    END
    $$;

    PERFORM set_config('search_path', session_path, true);
END
$ringfence$;
