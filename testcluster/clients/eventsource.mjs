import { EventSource } from 'eventsource';
import { assert, check, url } from './check.mjs';

// follow reads on until the last event, over all reconnects.
function follow(path) {
  return new Promise((done) => {
    const source = new EventSource(url + path);
    const got = { ids: [], data: [], opened: 0, errors: 0 };
    source.addEventListener('open', () => got.opened++);
    source.addEventListener('error', () => got.errors++);
    source.addEventListener('count', (event) => {
      got.ids.push(event.lastEventId);
      got.data.push(event.data);
      if (event.lastEventId === '20') {
        source.close();
        done(got);
      }
    });
  });
}

const all = Array.from({ length: 20 }, (_, i) => String(i + 1));

for (const [name, path] of [
  ['a stream that ends: goes on behind the last event', '/events/ends'],
  ['a stream that breaks within its chunks: goes on', '/events/broken'],
  ['a stream without framing that is reset: goes on', '/events/until-close'],
]) {
  await check(name, async () => {
    const got = await follow(path);
    assert.deepEqual(got.ids, all);
    assert.equal(got.data[0], '1\nof 20');
    assert.ok(got.opened >= 4 && got.errors >= 3, `opened ${got.opened} times, ${got.errors} errors`);
  });
}
