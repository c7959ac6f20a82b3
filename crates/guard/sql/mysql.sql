-- Marks of Ringfence guards in MariaDB 10.6 and MySQL 8.0.29 and later, for services in any language.
--
-- Run it once per database, with `mariadb bank < mysql.sql` or `mysql bank < mysql.sql`; running it
-- again changes no mark. It creates one table and its procedures in the database that is in use, and in
-- MariaDB replaces the procedures and triggers of an earlier release. In MySQL drop those before.
--
-- The marks are those of the procedure's own database, whatever a session has in USE. Where several
-- databases have procedures, call them with their database: CALL bank.ringfence_admit(...).
--
--   START TRANSACTION;
--   CALL ringfence_admit('bank/balance', 42);     -- first: takes the mark's lock until the commit
--   UPDATE balance SET amount = amount + 1;
--   RELEASE SAVEPOINT ringfence_admitted;         -- fails if the transaction is another one by now
--   COMMIT;
--
-- A new holder, before its first read and outside of a transaction, since it rolls back what is open:
--
--   CALL ringfence_advance('bank/balance', 42);
--
-- A procedure that refuses or fails leaves a transaction open that can only read, and in which nothing
-- is admitted: what a program sends behind it by oversight fails with 1792 until it rolls back.
--
-- The server ends a transaction unasked at a deadlock, and commits it at a statement such as CREATE
-- TABLE or a second START TRANSACTION. Each statement behind it commits on its own, without the mark.
-- So stop at any error, send no such statement, and release the savepoint before the commit: it goes
-- with the transaction that has admitted the fence. The clients `mariadb` and `mysql` stop at the first
-- error of a script unless they get --force. Two walls make it harmless to go on: SET SESSION TRANSACTION
-- READ ONLY, with START TRANSACTION READ WRITE for what is guarded, makes the server refuse what comes
-- behind a commit; SET autocommit = 0 makes what comes behind a deadlock wait for one, since the server
-- goes on in the mode of the transaction that it gave up.
--
-- A server with a binary log keeps what it has acknowledged with sync_binlog = 1 alone, besides
-- innodb_flush_log_at_trx_commit = 1: in MariaDB the default is 0. A replica applies rows without these
-- triggers: stop replication from a former primary before a promoted replica takes writes.
--
-- Only tables of InnoDB take part in transactions. A write to a table of MyISAM, Aria or MEMORY is done
-- at once, stays when its transaction is rolled back, and is not guarded.
--
-- What is refused raises an error with the SQLSTATE 45000, whose message begins with
--
--   STALE_TOKEN      a later grant has been here: stop the work, the lease is lost
--   MISSING_FENCE    no resource or no token was given
--   MALFORMED_FENCE  no lease name, or no token: 1 to 9223372036854775807
--   WRONG_LEASE      the fence is of another lease
--   MARK_STAYS       an attempt to lower, rename or delete a mark
--   NO_TRANSACTION   ringfence_admit was called outside of a transaction, where it would admit nothing
--   HIDDEN_MARKS     the mark was not written: a temporary table of the session has the name
--                    ringfence_marks, and the server shows that in its place; or the trigger
--                    ringfence_marks_seen is missing. Drop the table, or run this file again
--   MARK_KEPT        the mark was not raised: a trigger that this file has not made keeps it as it was
--   WRONG_ENGINE     ringfence_marks is not a table of InnoDB
--   WRONG_SHAPE      ringfence_marks was made by another statement: it lacks its primary key, for example,
--                    or has a foreign key, or a trigger that this file has not made
--   NOT_OWNED        this file was run where another account has made a procedure ringfence_*, or a trigger
--                    of the marks, or may alter one: it could change them later
--   TOKEN_TOO_HIGH   ringfence_admit or ringfence_advance was shown a token above (now + 1 day) * 2^20,
--                    with this server's clock in seconds since 1970, and above the mark: it was made up,
--                    or the clock is more than a day behind. It does not say that the lease is lost
--
-- Where tokens do not follow the clock, SET @ringfence_ceiling = 'off' switches TOKEN_TOO_HIGH off for
-- a session; a number in its place is the ceiling itself.
--
-- 1213, 1205 and 1020 say, as always, that the whole transaction is to be repeated.
--
-- The procedures run with the rights of their caller, who needs EXECUTE, and SELECT, INSERT and UPDATE on
-- ringfence_marks. To run this file takes CREATE, CREATE ROUTINE and TRIGGER, and where the server writes
-- a binary log also the right to make triggers then: SUPER, or log_bin_trust_function_creators = 1. No
-- trigger keeps TRUNCATE out: give the right to DROP to no service.
--
-- The triggers keep the account that ran this file as their DEFINER. If that account is dropped, or loses
-- its rights, every admission fails with 1449. So run it with an account that stays, and always with that
-- one: what another account has made fails with NOT_OWNED, unless that account has the right SUPER and the one
-- that runs this may see it. See what it has made, then DROP its procedures ringfence_* and its triggers, and
-- run this again; grant EXECUTE again where it was granted on a procedure. Where an account may alter what
-- belongs to this one: REVOKE ALTER ROUTINE ON PROCEDURE ... FROM it.
--
-- Give CREATE ROUTINE, TRIGGER and CREATE VIEW in the database to no account that may not have the marks, and
-- the data, in its hands.

-- Procedures keep the mode in which they are made: a value that does not fit is an error, not cut.
SET @ringfence_sql_mode = @@SESSION.sql_mode;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

DELIMITER //

-- Fails unless what is there belongs to the account that runs this file, or to one that may do anything: who
-- has made a procedure may change it later, and it runs with the rights of its caller. It is made again each
-- time, since one of that name could be a stranger's; the others keep the rights that were granted on them.
DROP PROCEDURE IF EXISTS ringfence_check_owner//

CREATE PROCEDURE ringfence_check_owner()
    SQL SECURITY INVOKER
BEGIN
    DECLARE found, reason VARCHAR(512) CHARACTER SET utf8mb4;
    -- The list of those who may alter a procedure is for accounts that may read `mysql`.
    DECLARE CONTINUE HANDLER FOR 1142, 1143 BEGIN END;
    SELECT MIN(CONCAT(what, ' belongs to ', account)) INTO found FROM (
        SELECT CONCAT(LOWER(routine_type), ' ', routine_name) AS what, definer AS account
            FROM information_schema.routines
            WHERE routine_schema = DATABASE() AND routine_name LIKE 'ringfence\_%'
        UNION ALL
        SELECT CONCAT('trigger ', trigger_name), definer FROM information_schema.triggers
            WHERE event_object_schema = DATABASE() AND event_object_table = 'ringfence_marks'
    ) AS made
    WHERE CAST(account AS BINARY) <> CAST(CURRENT_USER() AS BINARY) AND NOT EXISTS (
        SELECT 1 FROM information_schema.user_privileges WHERE privilege_type = 'SUPER'
            AND CAST(REPLACE(grantee, '\'', '') AS BINARY) = CAST(account AS BINARY)
    );
    IF found IS NULL THEN
        SELECT MIN(CONCAT(account, ' may alter ', what)) INTO found FROM (
            SELECT CONCAT(LOWER(routine_type), ' ', routine_name) AS what, CONCAT(user, '@', host) AS account
                FROM mysql.procs_priv
                WHERE db = DATABASE() AND routine_name LIKE 'ringfence\_%'
                    AND FIND_IN_SET('Alter Routine', proc_priv)
        ) AS altered
        WHERE CAST(account AS BINARY) <> CAST(CURRENT_USER() AS BINARY) AND NOT EXISTS (
            SELECT 1 FROM information_schema.user_privileges WHERE privilege_type = 'SUPER'
                AND CAST(REPLACE(grantee, '\'', '') AS BINARY) = CAST(account AS BINARY)
        );
    END IF;
    IF found IS NOT NULL THEN
        SET reason = LEFT(CONCAT('NOT_OWNED: ', found, '; expected ', CURRENT_USER(), ' alone'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = reason;
    END IF;
END//

CALL ringfence_check_owner()//

-- One row per lease. Each admission changes the row, by its counter, also when the mark is equal: so
-- it takes part in what a Galera cluster or a group compares at the commit.
CREATE TABLE IF NOT EXISTS ringfence_marks (
    name VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    mark BIGINT NOT NULL CHECK (mark > 0),
    admissions BIGINT UNSIGNED NOT NULL DEFAULT 1
) ENGINE = InnoDB
    COMMENT = 'The greatest fencing token that each lease has shown. Marks outlive their data.'//

CREATE /*M! OR REPLACE */ TRIGGER /*!80029 IF NOT EXISTS */ ringfence_marks_only_grow BEFORE UPDATE ON ringfence_marks FOR EACH ROW
BEGIN
    -- A comparison with NULL is neither true nor false, and UPDATE IGNORE makes a 0 of NULL.
    IF NOT (NEW.mark >= OLD.mark) OR NEW.mark IS NULL OR NOT (NEW.name = OLD.name) OR NEW.name IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
            'MARK_STAYS: a mark of ringfence_marks can only grow, and keeps its name';
    END IF;
END//

-- A temporary table has no triggers. So only a write to the marks leaves this.
CREATE /*M! OR REPLACE */ TRIGGER /*!80029 IF NOT EXISTS */ ringfence_marks_seen BEFORE INSERT ON ringfence_marks FOR EACH ROW
BEGIN
    SET @ringfence_seen = NEW.mark;
END//

CREATE /*M! OR REPLACE */ TRIGGER /*!80029 IF NOT EXISTS */ ringfence_marks_stay BEFORE DELETE ON ringfence_marks FOR EACH ROW
BEGIN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
        'MARK_STAYS: a mark of ringfence_marks outlives its data; delete the data alone';
END//

-- Raises what the others refuse. A message has 128 characters at most, so a name may be cut.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_refuse(IN reason VARCHAR(128) CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = reason;
END//

-- Fails unless the marks are in InnoDB: any other engine keeps a mark whose data was rolled back, and
-- locks no row until the commit.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_check_engine()
    SQL SECURITY INVOKER
BEGIN
    DECLARE found VARCHAR(64);
    SELECT engine INTO found FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks';
    IF found IS NULL OR found <> 'InnoDB' THEN
        CALL ringfence_refuse(CONCAT('WRONG_ENGINE: ringfence_marks is in ', COALESCE(found, '(none)'),
            ', expected InnoDB: ALTER TABLE ringfence_marks ENGINE = InnoDB'));
    END IF;
END//

-- Refuses what is no name or no token. Both come as texts that hold anything, since a value that does
-- not fit its type fails before the procedure begins, and with it what makes the transaction read-only.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_check(
    IN resource LONGTEXT CHARACTER SET utf8mb4,
    IN token LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    IF resource IS NULL OR token IS NULL THEN
        CALL ringfence_refuse(CONCAT('MISSING_FENCE: this is guarded by lease "',
            LEFT(COALESCE(resource, '(none)'), 32), '"; show the token of its grant'));
    END IF;
    IF resource = '' OR CHAR_LENGTH(resource) > 255
        OR CONVERT(resource USING ascii) REGEXP '[^A-Za-z0-9._~:@/-]' THEN
        CALL ringfence_refuse(CONCAT('MALFORMED_FENCE: "', LEFT(resource, 32), '" is no lease name'));
    END IF;
    IF CHAR_LENGTH(token) > 19 OR CONVERT(token USING ascii) REGEXP '^$|^0|[^0-9]'
        OR CAST(token AS DECIMAL(20)) > 9223372036854775807 THEN
        CALL ringfence_refuse(CONCAT('MALFORMED_FENCE: the token "', LEFT(token, 32),
            '" is out of range; a token is 1 to 9223372036854775807'));
    END IF;
END//

-- Fails if a table of that name was there before this file and has another shape. Without the key each
-- admission is a row of its own, and any of them is compared.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_check_shape()
    SQL SECURITY INVOKER
BEGIN
    DECLARE found_key, found_mark, found_more VARCHAR(64) CHARACTER SET utf8mb4;
    SELECT LEFT(GROUP_CONCAT(CONCAT(column_name, COALESCE(CONCAT('(', sub_part, ')'), ''))
            ORDER BY seq_in_index), 24) INTO found_key
        FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks' AND index_name = 'PRIMARY';
    SELECT LEFT(CONCAT(column_type, IF(is_nullable = 'NO', ' NOT NULL', '')), 24) INTO found_mark
        FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks' AND column_name = 'mark'
            AND NOT (data_type = 'bigint' AND is_nullable = 'NO' AND column_type NOT LIKE '%unsigned%');
    IF found_key IS NULL OR found_key <> 'name' OR found_mark IS NOT NULL THEN
        CALL ringfence_refuse(CONCAT('WRONG_SHAPE: PRIMARY KEY (', COALESCE(found_key, 'none'), '), mark ',
            COALESCE(found_mark, 'bigint NOT NULL'), '; expected PRIMARY KEY (name), mark bigint NOT NULL'));
    END IF;
    -- A foreign key deletes marks with the rows of another table, and fires no trigger. Through a second
    -- unique index the mark of another lease is written. Another trigger can write another mark.
    SELECT LEFT(MIN(what), 48) INTO found_more FROM (
        SELECT CONCAT('column ', column_name) AS what FROM information_schema.columns
            WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks'
                AND column_name NOT IN ('name', 'mark', 'admissions')
        UNION ALL
        SELECT CONCAT('index ', index_name) FROM information_schema.statistics
            WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks' AND index_name <> 'PRIMARY'
        UNION ALL
        SELECT CONCAT('foreign key ', constraint_name) FROM information_schema.referential_constraints
            WHERE constraint_schema = DATABASE() AND table_name = 'ringfence_marks'
        UNION ALL
        SELECT CONCAT('trigger ', trigger_name) FROM information_schema.triggers
            WHERE event_object_schema = DATABASE() AND event_object_table = 'ringfence_marks' AND trigger_name
                NOT IN ('ringfence_marks_only_grow', 'ringfence_marks_seen', 'ringfence_marks_stay')
    ) AS more;
    IF found_more IS NOT NULL THEN
        CALL ringfence_refuse(CONCAT('WRONG_SHAPE: the ', found_more,
            '; expected name, mark, admissions and PRIMARY KEY (name) alone'));
    END IF;
END//

-- What the procedures below have in common. The row is written first, also when the mark is equal:
-- only a write keeps the next grant out until the commit, at every isolation level.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_raise(
    IN lease VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin, IN offered BIGINT, OUT found BIGINT)
    SQL SECURITY INVOKER
BEGIN
    SET @ringfence_seen = NULL;
    INSERT INTO ringfence_marks (name, mark) VALUES (lease, offered)
        ON DUPLICATE KEY UPDATE mark = GREATEST(mark, offered), admissions = admissions + 1;
    IF @ringfence_seen IS NULL THEN
        CALL ringfence_refuse('HIDDEN_MARKS: a temporary table ringfence_marks hides the marks, or their '
            'trigger ringfence_marks_seen is missing');
    END IF;
    SELECT mark INTO found FROM ringfence_marks WHERE name = lease FOR UPDATE;
    IF NOT (found >= offered) OR found IS NULL THEN
        CALL ringfence_refuse(CONCAT('MARK_KEPT: another trigger of ringfence_marks keeps the mark of lease "',
            LEFT(lease, 24), '" below token ', offered));
    END IF;
END//

CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_show_fence(
    IN resource LONGTEXT CHARACTER SET utf8mb4,
    IN token LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE lease VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE offered, found, ceiling BIGINT;
    CALL ringfence_check(resource, token);
    SET lease = CONVERT(resource USING ascii);
    SET offered = token;
    SET ceiling = CASE COALESCE(@ringfence_ceiling, '')
        WHEN 'off' THEN 9223372036854775807
        WHEN '' THEN (FLOOR(UNIX_TIMESTAMP()) + 86400) * 1048576
        ELSE CAST(@ringfence_ceiling AS SIGNED)
    END;
    -- A mark only grows: one that has reached the token stays there, and is no reason to refuse it.
    IF offered > ceiling AND NOT EXISTS (
        SELECT 1 FROM ringfence_marks WHERE name = lease AND mark >= offered FOR UPDATE
    ) THEN
        CALL ringfence_refuse(CONCAT('TOKEN_TOO_HIGH: token ', offered, ' of lease "',
            LEFT(resource, 24), '" is above the ceiling ', ceiling));
    END IF;
    CALL ringfence_raise(lease, offered, found);
    IF found > offered THEN
        CALL ringfence_refuse(CONCAT('STALE_TOKEN: token ', offered, ' of lease "',
            LEFT(resource, 24), '" was overtaken by token ', found));
    END IF;
END//

-- Admits the token for the rest of the transaction, or raises. Must come first in it.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_admit(
    IN resource LONGTEXT CHARACTER SET utf8mb4,
    IN token LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        -- A transaction of XA, as JTA begins one, cannot be ended here: its caller has to end it by XA
        -- ROLLBACK, and must not go on behind an error.
        DECLARE CONTINUE HANDLER FOR 1399 BEGIN END;
        -- The caller may overlook the error. Nothing that it sends next may be written.
        ROLLBACK AND NO CHAIN NO RELEASE;
        START TRANSACTION READ ONLY;
        RESIGNAL;
    END;
    BEGIN
        -- Outside of a transaction a savepoint ends with its statement.
        DECLARE EXIT HANDLER FOR 1305 CALL ringfence_refuse(
            'NO_TRANSACTION: ringfence_admit was called outside of a transaction; START TRANSACTION first');
        SAVEPOINT ringfence_probe;
        RELEASE SAVEPOINT ringfence_probe;
    END;
    CALL ringfence_show_fence(resource, token);
    SAVEPOINT ringfence_admitted;
END//

-- Tells the store that this is the grant in force, and commits that. A new holder calls it before its
-- first read; advancing twice changes nothing.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_advance(
    IN resource LONGTEXT CHARACTER SET utf8mb4,
    IN token LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    ROLLBACK AND NO CHAIN NO RELEASE;
    START TRANSACTION READ WRITE;
    CALL ringfence_show_fence(resource, token);
    COMMIT AND NO CHAIN NO RELEASE;
END//

-- Raises the mark to `floor` if it is lower, and commits that. After a restore, and after any loss of
-- the newest commits, call it with the lease's newest token before writes are served. It has no ceiling: a
-- mark that it raised too far stays there.
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_advance_to(
    IN resource LONGTEXT CHARACTER SET utf8mb4,
    IN floor LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE found BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    ROLLBACK AND NO CHAIN NO RELEASE;
    START TRANSACTION READ WRITE;
    CALL ringfence_check(resource, floor);
    CALL ringfence_raise(CONVERT(resource USING ascii), floor, found);
    COMMIT AND NO CHAIN NO RELEASE;
END//

-- As ringfence_admit, for a fence `NAME#TOKEN` as a holder shows it, which must be one of `resource`:
--
--   CALL ringfence_admit_fence('bank/balance', 'bank/balance#42');
CREATE /*M! OR REPLACE */ PROCEDURE /*!80029 IF NOT EXISTS */ ringfence_admit_fence(
    IN resource LONGTEXT CHARACTER SET utf8mb4,
    IN fence LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE digits, shown LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        -- As in ringfence_admit.
        DECLARE CONTINUE HANDLER FOR 1399 BEGIN END;
        ROLLBACK AND NO CHAIN NO RELEASE;
        START TRANSACTION READ ONLY;
        RESIGNAL;
    END;
    IF fence IS NULL THEN
        CALL ringfence_check(resource, NULL);
    END IF;
    SET shown = SUBSTRING_INDEX(fence, '#', 1);
    SET digits = SUBSTRING(fence, CHAR_LENGTH(shown) + 2);
    IF CHAR_LENGTH(shown) NOT BETWEEN 1 AND 255 OR CHAR_LENGTH(digits) > 19
        OR CONVERT(shown USING ascii) REGEXP '[^A-Za-z0-9._~:@/-]'
        OR CONVERT(digits USING ascii) REGEXP '^$|^0|[^0-9]' THEN
        CALL ringfence_refuse(CONCAT('MALFORMED_FENCE: "', LEFT(fence, 64),
            '" is no fence; a fence is NAME#TOKEN'));
    END IF;
    IF CONVERT(shown USING ascii) COLLATE ascii_bin <> CONVERT(resource USING ascii) COLLATE ascii_bin THEN
        CALL ringfence_refuse(CONCAT('WRONG_LEASE: the fence is of lease "', LEFT(shown, 24),
            '", but this is guarded by lease "', LEFT(resource, 24), '"'));
    END IF;
    CALL ringfence_admit(resource, digits);
END//

DELIMITER ;

SET SESSION sql_mode = @ringfence_sql_mode;

CALL ringfence_check_engine();
CALL ringfence_check_shape();
