// What the scripts share. A check prints "ok NAME" or "FAILED NAME: WHY".
import assert from 'node:assert/strict';

export const url = process.env.STARLING_URL;
export const sockets = url.replace('http', 'ws') + '/sockets';
export { assert };

export async function check(name, run) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error('nothing for 15 s')), 15000);
  });
  try {
    await Promise.race([run(), late]);
    console.log(`ok ${name}`);
  } catch (err) {
    console.log(`FAILED ${name}: ${String(err?.message ?? err).replace(/\s+/g, ' ').slice(0, 300)}`);
    process.exitCode = 1;
  } finally {
    clearTimeout(timer);
  }
}

// eventually waits until look finds nothing wrong.
export async function eventually(ms, look) {
  for (const by = Date.now() + ms; ; ) {
    const wrong = await look();
    if (!wrong) return;
    if (Date.now() > by) assert.fail(`after ${ms} ms still: ${wrong}`);
    await new Promise((done) => setTimeout(done, 10));
  }
}

// once waits for an event of an EventEmitter.
export const once = (from, event) => new Promise((done) => from.once(event, (...args) => done(args)));
