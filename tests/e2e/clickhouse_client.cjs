// SPDX-License-Identifier: Apache-2.0
// The stock ClickHouse client for Node.js against the store: exits 0 when it notices no difference.
const assert = require("node:assert");
const { createClient, ClickHouseError, ClickHouseLogLevel } = require("@clickhouse/client");
const { Readable } = require("node:stream");

const [url, password] = process.argv.slice(2);
const base = { url, username: "default", password, request_timeout: 30000,
    log: { level: ClickHouseLogLevel.OFF } };

async function rejects(promise, code, type) {
    const e = await promise.then(() => null, (e) => e);
    assert.ok(e instanceof ClickHouseError, `expected ClickHouse's error ${code}, got ${e}`);
    assert.deepEqual([e.code, e.type], [code, type], e.message);
}

async function queries(client) {
    assert.deepEqual(await client.ping(), { success: true });
    let rows = await client.query({ query: "SELECT number AS n FROM system.numbers LIMIT 3",
        format: "JSONEachRow" });
    assert.deepEqual((await rows.json()).map((r) => Number(r.n)), [0, 1, 2]);
    rows = await client.query({ query: "SELECT {a: Array(UInt8)} AS a, {s: String} AS s, {d: DateTime} AS d",
        query_params: { a: [1, 2], s: "it's\t\\ \n", d: new Date("2026-01-02T03:04:05Z") },
        format: "JSON", clickhouse_settings: { session_timezone: "UTC" } });
    const json = await rows.json();
    assert.deepEqual(json.data, [{ a: [1, 2], s: "it's\t\\ \n", d: "2026-01-02 03:04:05" }]);
    assert.equal(json.rows, 1);
    rows = await client.query({ query: "SELECT getSetting('max_threads') AS t", format: "JSONCompact",
        clickhouse_settings: { max_threads: 1 }, query_id: "my-own-id" });
    assert.equal(rows.query_id, "my-own-id");
    assert.equal(String((await rows.json()).data[0][0]), "1");
}

async function inserts(client) {
    await client.command({ query: "CREATE TABLE node (id UInt64, name String, t DateTime64(6, 'UTC')) " +
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 100" });
    const values = [...Array(1000).keys()].map((id) => ({ id, name: `name ${id} \u2603`, t: id * 1000000 }));
    const done = await client.insert({ table: "node", values, format: "JSONEachRow" });
    assert.equal(done.executed, true);
    assert.equal(done.summary.written_rows, "1000");
    const stream = Readable.from((function* () {
        for (let id = 1000; id < 3000; id++) yield { id, name: "streamed", t: 0 };
    })());
    await client.insert({ table: "node", values: stream, format: "JSONEachRow" });
    await client.insert({ table: "node", values: [[3000, "array", 0]], format: "JSONCompactEachRow",
        columns: ["id", "name", "t"] });
    for (let i = 0; i < 2; i++)
        await client.insert({ table: "node", values: [{ id: 4000, name: "once", t: 0 }], format: "JSONEachRow",
            clickhouse_settings: { insert_deduplication_token: "a token" } });
    await client.insert({ table: "node", values: [], format: "JSONEachRow" });
    const rows = await client.query({ query: "SELECT count() AS n, uniqExact(id) AS u, countIf(name = 'once') AS o, " +
        "toUnixTimestamp(max(t)) AS t FROM node", format: "JSONEachRow" });
    const [{ n, u, o, t }] = await rows.json();
    assert.deepEqual([n, u, o, t].map(Number), [3002, 3002, 1, 999]);
}

async function streams(client) {
    const rows = await client.query({ query: "SELECT number FROM system.numbers LIMIT 300000", format: "JSONEachRow" });
    let n = 0;
    for await (const chunk of rows.stream()) n += chunk.length;
    assert.equal(n, 300000);
    const { stream } = await client.exec({ query: "SELECT 1 AS a FORMAT CustomSeparated" });
    let text = "";
    for await (const chunk of stream) text += chunk;
    assert.equal(text, "1\n");
    // an error behind the first rows reaches the reader as an error
    const late = await client.query({ query: "SELECT throwIf(number = 2000000) FROM system.numbers LIMIT 3000000",
        format: "JSONEachRow" });
    await assert.rejects(async () => { for await (const _ of late.stream()); });
}

async function errors(client) {
    await rejects(client.query({ query: "SELECT * FROM no_such_table" }), "60", "UNKNOWN_TABLE");
    await rejects(client.query({ query: "SELEC 1 FROM" }), "62", "SYNTAX_ERROR");
    await rejects(client.query({ query: "SELECT 1", clickhouse_settings: { no_such: 1 } }), "115", "UNKNOWN_SETTING");
    await rejects(client.insert({ table: "node", values: [{ id: "x" }], format: "JSONEachRow" }), "27",
        "CANNOT_PARSE_INPUT_ASSERTION_FAILED");
    const stranger = createClient({ ...base, password: "wrong" });
    await rejects(stranger.query({ query: "SELECT 1" }), "516", "AUTHENTICATION_FAILED");
    await stranger.close();
    const elsewhere = createClient({ ...base, database: "no_such" });
    await rejects(elsewhere.query({ query: "SELECT 1" }), "81", "UNKNOWN_DATABASE");
    await elsewhere.close();
}

async function together(client) {
    const slow = client.query({ query: "SELECT sleep(1.5)", format: "JSONEachRow" }).then((r) => r.json());
    let slowDone = false;
    slow.then(() => { slowDone = true; });
    await client.insert({ table: "node", values: [{ id: 5000, name: "beside", t: 0 }], format: "JSONEachRow" });
    assert.deepEqual(await client.ping(), { success: true });
    const r = await client.query({ query: "SELECT count() AS n FROM node WHERE id = 5000", format: "JSONEachRow" });
    assert.equal(Number((await r.json())[0].n), 1);
    assert.equal(slowDone, false, "the slow query held up the others");
    await slow;
}

(async () => {
    for (const compression of [{}, { request: true, response: true }]) {
        const client = createClient({ ...base, compression, session_id: "a-session" + Object.keys(compression).length });
        await client.command({ query: "DROP TABLE IF EXISTS node" });
        for (const part of [queries, inserts, streams, errors]) await part(client);
        await client.close();
    }
    const client = createClient({ ...base, max_open_connections: 10 });
    await together(client);
    await client.close();
    console.log("no difference noticed");
})().catch((e) => { console.error(e); process.exit(1); });
