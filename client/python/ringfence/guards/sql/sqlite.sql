-- Marks of Ringfence guards in SQLite 3.37 and later, for services in any language.
--
-- Run it once per database; running it again changes nothing. Then each write is one transaction:
--
--   BEGIN IMMEDIATE;
--   INSERT INTO main.ringfence_marks (name, mark) VALUES ('bank/balance', 42)    -- first
--       ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE mark <= excluded.mark;
--   UPDATE balance SET amount = amount + 1;
--   COMMIT;
--
-- Always write `main`: a temporary table or view of that name comes first in SQLite, has no marks, and
-- would admit anything.
--
-- The insert fails with STALE_TOKEN if a greater token was admitted. Stop at any error, with ROLLBACK:
-- SQLite ends the transaction unasked when a write is interrupted or the disk is full, and what is
-- sent behind it would commit without the mark. The shell stops with `sqlite3 -bail`.
--
-- Nothing here refuses a token that was made up, and a mark that was raised too far stays there. If
-- others choose what is shown, refuse a token above (now + 86400) * 1048576 before the insert, with now
-- in seconds since 1970; the guard in Rust does.
--
-- What this file cannot keep out, since a connection owns the whole file: DROP TABLE ringfence_marks, ALTER
-- TABLE ... RENAME, DROP TRIGGER, and PRAGMA writable_schema. Each takes marks away, and later writes find
-- none: raise them then as after a restore. A trigger of others on the table can ignore the insert, which
-- changes no row then: look at changes() where others may make triggers. `ringfence guard sqlite` and the
-- guard in Rust refuse all of these in a script or an effect; `sqlite3` alone does not.
--
-- One row per lease. Rows are never deleted and marks never lowered; the triggers hold that also
-- against a hand at the console.
CREATE TABLE IF NOT EXISTS main.ringfence_marks (
    name TEXT PRIMARY KEY NOT NULL,
    mark INTEGER NOT NULL CHECK (mark > 0)
) STRICT, WITHOUT ROWID;

-- REPLACE deletes the old row without a trigger, so the new one is looked at before it comes in.
CREATE TRIGGER IF NOT EXISTS main.ringfence_marks_no_stale_token
    BEFORE INSERT ON ringfence_marks
    WHEN EXISTS (SELECT 1 FROM ringfence_marks WHERE name = NEW.name AND mark > NEW.mark)
    BEGIN SELECT RAISE(ABORT, 'STALE_TOKEN: a greater token of this lease was admitted; stop the work, its lease is lost'); END;

-- REPLACE deletes a row that is equal in the columns of any unique index, whatever its name, without a
-- trigger. An index is also an expression that can fail.
CREATE TRIGGER IF NOT EXISTS main.ringfence_marks_no_index_at_insert
    BEFORE INSERT ON ringfence_marks
    WHEN EXISTS (SELECT 1 FROM sqlite_master
        WHERE type = 'index' AND tbl_name = 'ringfence_marks' COLLATE NOCASE AND sql IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'MARKS_INDEXED: the table ringfence_marks has an index that Ringfence has not made; drop it, and see that no mark is missing'); END;

CREATE TRIGGER IF NOT EXISTS main.ringfence_marks_no_index_at_update
    BEFORE UPDATE ON ringfence_marks
    WHEN EXISTS (SELECT 1 FROM sqlite_master
        WHERE type = 'index' AND tbl_name = 'ringfence_marks' COLLATE NOCASE AND sql IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'MARKS_INDEXED: the table ringfence_marks has an index that Ringfence has not made; drop it, and see that no mark is missing'); END;

CREATE TRIGGER IF NOT EXISTS main.ringfence_marks_only_grow
    BEFORE UPDATE ON ringfence_marks WHEN NEW.mark < OLD.mark OR NEW.name <> OLD.name
    BEGIN SELECT RAISE(ABORT, 'a mark of ringfence_marks can only grow'); END;

CREATE TRIGGER IF NOT EXISTS main.ringfence_marks_stay
    BEFORE DELETE ON ringfence_marks
    BEGIN SELECT RAISE(ABORT, 'a mark of ringfence_marks outlives its data'); END;
