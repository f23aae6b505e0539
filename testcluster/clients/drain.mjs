// Sees starling stop while WebSockets are open.
import WebSocket from 'ws';
import { assert, check, once, sockets } from './check.mjs';

await check('ws hears 1001 when starling stops', async () => {
  const all = Array.from({ length: 5 }, () => new WebSocket(sockets));
  await Promise.all(all.map((ws) => once(ws, 'open')));
  const closed = all.map((ws) => once(ws, 'close'));
  const errors = [];
  for (const ws of all) ws.on('error', (err) => errors.push(err));
  console.log('open');
  for (const [code] of await Promise.all(closed)) assert.equal(code, 1001);
  assert.deepEqual(errors, []);
});
