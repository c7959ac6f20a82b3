-- Makes the schema `trap` and puts it in front of `pg_catalog` in each later session of this database. It
-- has a function, an aggregate, an operator, a type, a view and a collation for each name of `pg_catalog`
-- that the text in the setting `trap.text` contains, with the arguments that the server's own have. A
-- function whose arguments can be anything has one for each of some types, which the server prefers. Each of
-- them counts in `trap.sprung`, also where its transaction fails, and fails.
SET search_path = pg_catalog;
SET client_min_messages = warning;
CREATE SCHEMA trap;
CREATE SEQUENCE trap.sprung;
CREATE FUNCTION trap.spring(what text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS
    $$ BEGIN PERFORM nextval('trap.sprung'); RAISE EXCEPTION 'TRAP: % was called', what; END $$;

DO $$
DECLARE
    words text[] := regexp_split_to_array(current_setting('trap.text'), '[^A-Za-z0-9_]+');
    -- It needs no RETURN, since it never comes to that.
    body text := 'LANGUAGE plpgsql SET search_path = pg_catalog AS $body$ BEGIN PERFORM trap.spring(%L); END $body$';
    kinds text[] := '{text,name,oid,xid,bigint,regnamespace}';
    found record;
    made text[];
    one text;
BEGIN
    FOR found IN
        SELECT p.oid::bigint AS number, proname AS name, prokind AS kind, provariadic = '"any"'::regtype AS of_any,
            pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
        FROM pg_proc p
        WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (words) AND prokind IN ('f', 'a')
            -- No other call is one of an aggregate of an ordered set.
            AND NOT EXISTS (SELECT FROM pg_aggregate WHERE aggfnoid = p.oid AND aggkind <> 'n')
    LOOP
        BEGIN
            IF found.kind = 'a' THEN
                one := nullif(found.arguments, '');
                EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS bigint %s', 'step_' || found.number,
                    concat_ws(', ', 'bigint', one), format(body, found.name));
                EXECUTE format('CREATE AGGREGATE trap.%I(%s) (SFUNC = trap.%I, STYPE = bigint)', found.name,
                    coalesce(one, '*'), 'step_' || found.number);
            ELSIF found.of_any THEN
                -- One or two arguments behind the first, and those of a use that has more.
                SELECT array_agg(list) INTO made FROM (
                    SELECT concat_ws(', ', 'text', a) AS list FROM unnest(kinds) a
                    UNION SELECT concat_ws(', ', 'text', a, b) FROM unnest(kinds) a, unnest(kinds) b
                    UNION SELECT 'text, oid, oid, oid, oid, xid, text, text'
                ) AS lists;
                FOREACH one IN ARRAY made LOOP
                    EXECUTE format('CREATE OR REPLACE FUNCTION trap.%I(%s) RETURNS %s %s', found.name, one,
                        found.result, format(body, found.name));
                END LOOP;
            ELSE
                EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s %s', found.name, found.arguments,
                    found.result, format(body, found.name));
            END IF;
        EXCEPTION WHEN invalid_function_definition OR feature_not_supported THEN
            -- Arguments that only functions in C can have.
            NULL;
        END;
    END LOOP;

    FOR found IN
        SELECT o.oid::bigint AS number, oprname AS name, oprleft::regtype AS "left", oprright::regtype AS "right",
            oprresult::regtype AS result
        FROM pg_operator o
        WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0 AND oprright <> 0
            AND strpos(current_setting('trap.text'), oprname) > 0
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION trap.%I(%s, %s) RETURNS %s %s', 'operator_' || found.number,
                found."left", found."right", found.result, format(body, found.name));
            EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.%I)',
                found.name, found."left", found."right", 'operator_' || found.number);
        EXCEPTION WHEN invalid_function_definition OR feature_not_supported THEN
            NULL;
        END;
    END LOOP;

    FOR found IN
        SELECT typname AS name FROM pg_type
        WHERE typnamespace = 'pg_catalog'::regnamespace AND typname = ANY (words) AND typtype = 'b'
    LOOP
        EXECUTE format('CREATE DOMAIN trap.%I AS pg_catalog.%I CHECK (trap.spring(%L))', found.name,
            found.name, 'type ' || found.name);
    END LOOP;
    FOR found IN
        SELECT relname AS name FROM pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relname = ANY (words) AND relkind IN ('r', 'v')
            -- The name of a type as well.
            AND to_regtype('trap.' || quote_ident(relname)) IS NULL
    LOOP
        EXECUTE format('CREATE VIEW trap.%I AS SELECT trap.spring(%L)', found.name, 'view ' || found.name);
    END LOOP;
    CREATE COLLATION trap."C" FROM pg_catalog."POSIX";
    EXECUTE format('ALTER DATABASE %I SET search_path = trap, public, pg_catalog', current_database());
END
$$;
