// A holder that a test commands; ../python/holder.py says how. recipe.mjs is the block of the page.
import { createInterface } from 'node:readline';
import pg from 'pg';
import { STALE, advance, write } from './recipe.mjs';

const LEASE = 'bank/interest';
const pool = new pg.Pool({ connectionString: process.argv[2], max: 1 });
// Connections that end while they are idle are none of this program's errors.
pool.on('error', () => {});
pool.on('connect', (client) => client.on('error', () => {}));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const update = (client, value) => client.query('UPDATE balance SET amount = $1', [value]);

const commands = {
  advance: (token) => advance(pool, LEASE, token),
  write: (token, value) => write(pool, LEASE, token, (client) => update(client, value)),
  pause: (token, value) =>
    write(pool, LEASE, token, async (client) => {
      console.log('paused');
      await lines.next();
      await update(client, value);
    }),
  end: (token, value) =>
    write(pool, LEASE, token, async (client) => {
      await client.query('COMMIT');
      console.log('paused');
      await lines.next();
      await update(client, value);
    }),
  aborted: (token, value) =>
    write(pool, LEASE, token, async (client) => {
      await update(client, value);
      await client.query('SELECT 1/0').catch(() => {});
    }),
  past: (token, value) => update(pool, value),
};

for (let line; !(line = await lines.next()).done; ) {
  const [command, token, value] = line.value.split(' ');
  try {
    await commands[command](BigInt(token), value);
    console.log('done');
  } catch (error) {
    console.log(error.code === STALE ? 'stale' : `failed: ${error.message}`);
  }
}
await pool.end();
