import OpenAI from 'openai';
import { assert, check, eventually, url } from './check.mjs';

const controls = JSON.parse(process.env.CONTROL_URLS);
const fullControl = process.env.FULL_CONTROL_URL;
const messages = [{ role: 'user', content: 'Tell me about starlings.' }];
const common = { model: 'demo-model', messages, seed: 42 };

const client = (pool) =>
  new OpenAI({ apiKey: 'none', baseURL: url + '/v1', maxRetries: 0, defaultHeaders: pool ? { 'X-Pool': pool } : {} });

const running = async (control) => (await (await fetch(control + '/control/status')).json()).running;

async function collect(stream) {
  const parts = [];
  let usage, finish;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) parts.push(chunk.choices[0].delta.content);
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  return { text: parts.join(''), parts, usage, finish };
}

await check('lists models', async () => {
  const list = await client().models.list();
  assert.deepEqual(list.data.map((m) => m.id), ['demo-model']);
});

let whole;
await check('a whole answer', async () => {
  const answer = await client().chat.completions.create({ ...common, max_tokens: 80 });
  whole = answer.choices[0].message.content;
  assert.equal(answer.usage.completion_tokens, 80);
  assert.equal(whole.split(' ').length, 80);
});

await check('a stream: all tokens, in order, with usage', async () => {
  const got = await collect(
    await client().chat.completions.create({ ...common, max_tokens: 80, stream: true, stream_options: { include_usage: true } }),
  );
  assert.equal(got.text, whole);
  assert.equal(got.parts.length, 80);
  assert.equal(got.finish, 'length');
  assert.equal(got.usage.completion_tokens, 80);
});

await check('20 streams at a time', async () => {
  const all = await Promise.all(
    Array.from({ length: 20 }, async () => collect(await client().chat.completions.create({ ...common, max_tokens: 80, stream: true }))),
  );
  for (const got of all) assert.equal(got.text, whole);
});

await check('a stream that is given up frees its backend', async () => {
  const stream = await client().chat.completions.create({ ...common, max_tokens: 5000, stream: true });
  let n = 0;
  for await (const _ of stream) {
    if (++n === 5) stream.controller.abort();
  }
  assert.ok(n >= 5 && n < 100, `${n} chunks`);
  await eventually(1000, async () => {
    const now = await Promise.all(controls.map(running));
    return now.some((r) => r > 0) && `${now} streams run`;
  });
});

await check('429 from a full pool', async () => {
  const first = await client('full').chat.completions.create({ ...common, max_tokens: 5000, stream: true });
  await assert.rejects(client('full').chat.completions.create({ ...common, stream: true }), (err) => {
    assert.ok(err instanceof OpenAI.RateLimitError, String(err));
    assert.equal(err.status, 429);
    assert.equal(err.code, 'saturated');
    assert.ok(Number(err.headers.get('retry-after')) > 0);
    return true;
  });
  first.controller.abort();
  await eventually(1000, async () => (await running(fullControl)) > 0 && 'the stream still runs');
});

await check('503 from a pool without a backend', async () => {
  await assert.rejects(client('none').chat.completions.create({ ...common, stream: true }), (err) => {
    assert.ok(err instanceof OpenAI.InternalServerError, String(err));
    assert.equal(err.status, 503);
    assert.equal(err.code, 'no_backend');
    return true;
  });
});

await check('400 of the backend passes', async () => {
  await assert.rejects(client().chat.completions.create({ ...common, messages: [] }), (err) => err instanceof OpenAI.BadRequestError);
});

await check('a stream that breaks off is an error, not an end', async () => {
  const put = (faults) => fetch(fullControl + '/control/faults', { method: 'PUT', body: JSON.stringify(faults) });
  await put({ break_after: 10 });
  try {
    await eventually(2000, async () => {
      // Its one place may be taken for a moment still.
      const stream = await client('full').chat.completions.create({ ...common, max_tokens: 80, stream: true }).catch((err) => err);
      if (stream.status === 429) return 'the pool is full';
      await assert.rejects(collect(stream), (err) => !(err instanceof assert.AssertionError));
      return '';
    });
  } finally {
    await put({});
  }
});
