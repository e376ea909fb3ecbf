// A gRPC client made from our schemas alone: `node run.js SCENARIO HOST:PORT PREFIX PROTO_FOLDER` prints what it saw
// as one line of JSON. Every topic it makes begins with PREFIX.

const path = require("path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [scenario, address, prefix, folder] = process.argv.slice(2);
const DEADLINE_MS = 60_000;

function load(file) {
  const options = { keepCase: true, longs: Number, defaults: true, oneofs: true, includeDirs: [folder] };
  return grpc.loadPackageDefinition(loader.loadSync(path.join(folder, file), options));
}

const credentials = grpc.credentials.createInsecure();
const log = new (load("millpond/v1/log.proto").millpond.v1.Log)(address, credentials);
const admin = new (load("millpond/v1/admin.proto").millpond.v1.Admin)(address, credentials);
const mini = new (load("protocol/minikafka.proto").protocol.MiniKafka)(address, credentials);

const soon = () => new Date(Date.now() + DEADLINE_MS);

function ask(service, method, request) {
  return new Promise((resolve, reject) => {
    service[method](request, { deadline: soon() }, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

const refused = (call) =>
  call.then(
    () => "not refused",
    (error) => ({ code: error.code, details: error.details, status: error.metadata.get("grpc-status-details-bin").length }),
  );

const text = (value) => (value === null || value === undefined ? null : value.toString());
const values = (response) => response.messages.map((message) => text(message.value));

const scenarios = {
  async minikafka() {
    const topic = `${prefix}-mini`;
    const unknown = await refused(ask(mini, "Poll", { topic, read_from: { msg_number: 1 } }));
    const numbers = [];
    for (const payload of ["one", "two", "three"]) {
      const made = await ask(mini, "Produce", { topic: { topic }, payload: { payload: Buffer.from(payload) } });
      numbers.push(made.msg_number);
    }
    const polled = await ask(mini, "Poll", { topic, read_from: { msg_number: 2 } });
    return {
      unknown: unknown.details.includes("topic"),
      numbers,
      payloads: polled.payloads.map((each) => text(each.payload)),
      next: polled.new_read_from.msg_number,
    };
  },

  async produce_and_poll() {
    const topic = `${prefix}-poll`;
    const binary = Buffer.from([0, 10, 255, 13, 0]);
    const messages = [
      { value: Buffer.from("plain") },
      { key: Buffer.from("k"), value: binary, headers: [{ name: "h", value: Buffer.from("v") }], timestamp_ms: 12 },
      { key: Buffer.from("deleted") },
    ];
    const produced = await ask(log, "Produce", { topic, messages });
    const polled = await ask(log, "Poll", { topic, positions: [{ partition: 0, read_from: 1 }] });
    const second = polled.messages[1];
    return {
      numbers: produced.numbers,
      same: second.value.equals(binary),
      key: text(second.key),
      headers: second.headers.map((each) => [each.name, text(each.value)]),
      timestamp: second.timestamp_ms,
      absent: !("_value" in polled.messages[2]),
      next: polled.standings[0].read_from,
    };
  },

  async stream() {
    const topic = `${prefix}-stream`;
    const results = await new Promise((resolve, reject) => {
      const seen = [];
      const call = log.ProduceStream({ deadline: soon() });
      call.on("data", (response) => seen.push(...response.results));
      call.on("error", reject);
      call.on("end", () => resolve(seen));
      for (let number = 0; number < 200; number++) {
        call.write({ topic, messages: [{ value: Buffer.from(`${number}`) }] });
      }
      call.write({ topic: "no/good", messages: [{ value: Buffer.from("x") }] });
      call.end();
    });
    const seen = await new Promise((resolve, reject) => {
      const found = [];
      const call = log.Consume({ topic, messages_max: 50, until_end: true }, { deadline: soon() });
      call.on("data", (response) => found.push(...values(response)));
      call.on("error", reject);
      call.on("end", () => resolve(found));
    });
    return {
      numbers: results.slice(0, 200).every((result, index) => result.produced.numbers[0] === index + 1),
      refused: results[200].error.reason,
      seen: seen.length === 200 && seen.every((value, index) => value === `${index}`),
    };
  },

  async follow() {
    const topic = `${prefix}-follow`;
    await ask(log, "Produce", { topic, messages: [{ value: Buffer.from("before") }] });
    return new Promise((resolve, reject) => {
      const seen = [];
      const call = log.Consume({ topic }, { deadline: soon() });
      call.on("error", (error) => (error.code === grpc.status.CANCELLED ? resolve({ seen }) : reject(error)));
      call.on("data", (response) => {
        seen.push(...values(response));
        if (seen.length === 3) call.cancel();
        else ask(log, "Produce", { topic, messages: [{ value: Buffer.from(`after ${seen.length}`) }] }).catch(reject);
      });
    });
  },

  async topics() {
    const name = `${prefix}-topics`;
    const made = await ask(admin, "CreateTopic", { name, partitions: 3, configs: { "retention.ms": "60000" } });
    const again = await refused(ask(admin, "CreateTopic", { name }));
    const range = await refused(
      ask(log, "Poll", { topic: name, strict: true, positions: [{ partition: 0, read_from: 9 }] }),
    );
    const described = await ask(admin, "DescribeTopic", { name });
    await ask(admin, "DeleteTopic", { name });
    const listed = (await ask(admin, "ListTopics", {})).topics.map((each) => each.name);
    return {
      partitions: made.partitions,
      retention: made.configs["retention.ms"],
      again: [again.code === grpc.status.ALREADY_EXISTS, again.status],
      range: range.code === grpc.status.OUT_OF_RANGE,
      described: described.partitions.length,
      gone: !listed.includes(name),
    };
  },
};

scenarios[scenario]()
  .then((result) => {
    console.log(JSON.stringify(result));
    process.exit(0);
  })
  .catch((error) => {
    console.error(error.stack ?? error);
    process.exit(1);
  });
