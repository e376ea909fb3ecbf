// kafkajs against a broker: `node run.js SCENARIO HOST:PORT PREFIX [INPUT]` prints what it saw as one line of JSON.
// Every topic and group it makes begins with PREFIX.

const { randomBytes } = require("crypto");
const { readFileSync } = require("fs");
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [scenario, address, prefix, input] = process.argv.slice(2);
const DEADLINE_MS = 60_000;

const kafka = new Kafka({
  clientId: "millpond-peer",
  brokers: [address],
  logLevel: logLevel.ERROR,
  retry: { retries: 8, initialRetryTime: 100 },
});

async function within(make, work) {
  const client = make();
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

const asAdmin = (work) => within(() => kafka.admin(), work);
const asProducer = (work, options = {}) => within(() => kafka.producer(options), work);

async function until(check, what) {
  const end = Date.now() + DEADLINE_MS;
  while (Date.now() < end) {
    const found = await check();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`waited in vain for ${what}`);
}

async function makeTopic(name, partitions = 1) {
  await asAdmin((admin) =>
    admin.createTopics({ topics: [{ topic: name, numPartitions: partitions }], waitForLeaders: true }),
  );
  return name;
}

// Reads until there are `count` messages; `during` may do something with the running consumer.
async function read(topic, count, { group, from = true, during } = {}) {
  const consumer = kafka.consumer({ groupId: group ?? `${prefix}-reader`, sessionTimeout: 10_000 });
  const seen = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topic, fromBeginning: from });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        const headers = Object.entries(message.headers ?? {}).map(([key, value]) => [key, String(value)]);
        seen.push({
          partition,
          offset: Number(message.offset),
          key: message.key && String(message.key),
          value: message.value && String(message.value),
          headers,
        });
      },
    });
    if (during) await during(consumer, seen);
    await until(() => seen.length >= count, `${count} messages of ${topic}`);
    return seen;
  } finally {
    await consumer.disconnect();
  }
}

const values = (seen) => seen.map((each) => each.value);

// INPUT of `login` is a file of logins by name: {ca, certificate, key, mechanism, user, password, token}. A login without
// a mechanism is by the client's certificate.
function loggedIn({ ca, certificate, key, mechanism, user, password, token }) {
  const sasl = mechanism && {
    mechanism: mechanism.toLowerCase(),
    ...(token ? { oauthBearerProvider: async () => ({ value: token }) } : { username: user, password }),
  };
  return new Kafka({
    clientId: "millpond-peer",
    brokers: [address],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    ssl: {
      ca: [readFileSync(ca)],
      ...(certificate ? { cert: readFileSync(certificate), key: readFileSync(key) } : {}),
    },
    ...(sasl ? { sasl } : {}),
  });
}

const attempt = (work) =>
  work().then(
    () => "yes",
    (error) => `${error.name} ${error.type ?? error.cause?.type ?? ""}: ${error.message}`,
  );

// Sends a message and reads it back in a group; then sends one to a topic without the right.
async function use(name, client) {
  const producer = client.producer({ retry: { retries: 0 } });
  const send = (topic) => attempt(() => producer.send({ topic, messages: [{ value: name }] }));
  try {
    const connected = await attempt(() => producer.connect());
    if (connected !== "yes") return { sent: connected };
    const sent = await send("orders");
    if (sent !== "yes") return { sent };
    return { sent, read: await finds(client, name), forbidden: await send("forbidden") };
  } finally {
    await producer.disconnect();
  }
}

async function finds(client, value) {
  const group = `${prefix}-${value.replace(/[^A-Za-z0-9]/g, "-")}`;
  const consumer = client.consumer({ groupId: group, retry: { retries: 8 } });
  const seen = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: "orders", fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => void seen.push(String(message.value)) });
    return await until(() => seen.includes(value), value);
  } finally {
    await consumer.disconnect();
  }
}

const scenarios = {
  async login() {
    const seen = {};
    for (const [name, given] of Object.entries(JSON.parse(readFileSync(input)))) {
      seen[name] = await use(name, loggedIn(given));
    }
    return seen;
  },

  async topics() {
    const name = `${prefix}-topics`;
    return asAdmin(async (admin) => {
      const created = await admin.createTopics({ topics: [{ topic: name, numPartitions: 2 }] });
      const again = await admin.createTopics({ topics: [{ topic: name, numPartitions: 2 }] });
      await admin.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] });
      const described = await until(async () => {
        const metadata = await admin.fetchTopicMetadata({ topics: [name] });
        return metadata.topics[0].partitions.length === 3 && metadata;
      }, "three partitions");
      const listed = (await admin.listTopics()).includes(name);
      const cluster = await admin.describeCluster();
      await admin.deleteTopics({ topics: [name] });
      const gone = await until(async () => !(await admin.listTopics()).includes(name), "the topic to go");
      return {
        created,
        again,
        partitions: described.topics[0].partitions.length,
        listed,
        brokers: cluster.brokers.length,
        gone,
      };
    });
  },

  async configs() {
    const name = await makeTopic(`${prefix}-configs`);
    const resource = { type: 2, name };
    return asAdmin(async (admin) => {
      await admin.alterConfigs({
        validateOnly: false,
        resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "123456" }] }],
      });
      const described = await admin.describeConfigs({
        includeSynonyms: false,
        resources: [{ ...resource, configNames: ["retention.ms"] }],
      });
      return { retention: described.resources[0].configEntries[0].configValue };
    });
  },

  async offsets() {
    const topic = await makeTopic(`${prefix}-offsets`);
    const groupId = `${prefix}-offsets-group`;
    const before = Date.now();
    await asProducer((producer) =>
      producer.send({ topic, messages: ["a", "b", "c"].map((value) => ({ value })) }),
    );
    return asAdmin(async (admin) => {
      const ends = await admin.fetchTopicOffsets(topic);
      const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, before - 60_000);
      await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "2" }] });
      const set = await admin.fetchOffsets({ groupId, topics: [topic] });
      await admin.resetOffsets({ groupId, topic, earliest: true });
      const reset = await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true });
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] });
      const after = await admin.fetchTopicOffsets(topic);
      return {
        high: Number(ends[0].high),
        low: Number(ends[0].low),
        byTime: Number(byTime[0].offset),
        set: Number(set[0].partitions[0].offset),
        reset: Number(reset[0].partitions[0].offset),
        lowAfter: Number(after[0].low),
      };
    });
  },

  async produce() {
    const topic = await makeTopic(`${prefix}-produce`);
    const send = async (producer, codec, compression) =>
      producer.send({
        topic,
        compression,
        messages: [0, 1].map((n) => ({ key: `k${n}`, value: `${codec} ${n}`, headers: { codec, n: `${n}` } })),
      });
    const answers = await asProducer(async (producer) => [
      await send(producer, "none", CompressionTypes.None),
      await send(producer, "gzip", CompressionTypes.GZIP),
    ]);
    const seen = await read(topic, 4);
    return { bases: answers.map((each) => Number(each[0].baseOffset)), seen };
  },

  async idempotent() {
    const topic = await makeTopic(`${prefix}-idempotent`);
    await asProducer(
      async (producer) => {
        for (const value of ["a", "b", "c"]) await producer.send({ topic, acks: -1, messages: [{ value }] });
      },
      { idempotent: true, maxInFlightRequests: 1 },
    );
    return { seen: values(await read(topic, 3)) };
  },

  async transactions() {
    const [source, sink] = [await makeTopic(`${prefix}-source`), await makeTopic(`${prefix}-sink`)];
    const groupId = `${prefix}-transactions-group`;
    const options = { transactionalId: `${prefix}-transactional`, maxInFlightRequests: 1, idempotent: true };
    await asProducer(async (producer) => {
      const steps = [
        ["kept", "commit", "5"],
        ["dropped", "abort", "9"],
        ["kept too", "commit", "7"],
      ];
      for (const [value, end, offset] of steps) {
        const transaction = await producer.transaction();
        await transaction.send({ topic: sink, messages: [{ value }] });
        const partitions = [{ partition: 0, offset }];
        await transaction.sendOffsets({
          consumerGroupId: groupId,
          topics: [{ topic: source, partitions }],
        });
        await transaction[end]();
      }
    }, options);
    const seen = values(await read(sink, 2));
    const committed = await asAdmin((admin) => admin.fetchOffsets({ groupId, topics: [source] }));
    return { seen, committed: Number(committed[0].partitions[0].offset) };
  },

  // Two members share four partitions; when one leaves, the other has them all.
  async group() {
    const topic = await makeTopic(`${prefix}-group`, 4);
    const groupId = `${prefix}-group-group`;
    const shares = {};
    const member = async (name) => {
      const consumer = kafka.consumer({
        groupId,
        sessionTimeout: 10_000,
        heartbeatInterval: 500,
        rebalanceTimeout: 10_000,
      });
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        shares[name] = payload.memberAssignment[topic] ?? [];
      });
      await consumer.connect();
      await consumer.subscribe({ topic });
      await consumer.run({ eachMessage: async () => {} });
      return consumer;
    };
    const count = (name) => (shares[name] ?? []).length;
    const first = await member("first");
    await until(() => count("first") === 4, "the first to have all");
    const second = await member("second");
    await until(() => count("first") === 2 && count("second") === 2, "both to have two");
    const [described, listed] = await asAdmin(async (admin) => [
      await admin.describeGroups([groupId]),
      await admin.listGroups(),
    ]);
    const shared = [...shares.first, ...shares.second].sort();
    await second.disconnect();
    await until(() => count("first") === 4, "the first to have all again");
    await first.disconnect();
    const deleted = await asAdmin((admin) => admin.deleteGroups([groupId]));
    return {
      shared,
      state: described.groups[0].state,
      members: described.groups[0].members.length,
      listed: listed.groups.some((each) => each.groupId === groupId),
      deleted: deleted[0].errorCode ?? 0,
    };
  },

  async resume() {
    const topic = await makeTopic(`${prefix}-resume`);
    const group = `${prefix}-resume-group`;
    const send = (...messages) =>
      asProducer((producer) => producer.send({ topic, messages: messages.map((value) => ({ value })) }));
    await send("a", "b");
    const first = values(await read(topic, 2, { group }));
    await send("c");
    const then = values(await read(topic, 1, { group }));
    return { first, then };
  },

  async seek() {
    const topic = await makeTopic(`${prefix}-seek`);
    await asProducer((producer) =>
      producer.send({ topic, messages: ["a", "b", "c"].map((value) => ({ value })) }),
    );
    const again = async (consumer, seen) => {
      await until(() => seen.length === 3, "the first three");
      consumer.seek({ topic, partition: 0, offset: "1" });
    };
    return { seen: values(await read(topic, 5, { during: again })) };
  },

  // INPUT is a list of sends: {topic, partition, gzip, timestamps, bytes}. Each is one batch, with one message for each
  // timestamp; null leaves the timestamp to kafkajs. The first message has a value of that length.
  async times() {
    const sends = JSON.parse(input);
    const answers = await asProducer(async (producer) => {
      const found = [];
      for (const { topic, partition, gzip, timestamps, bytes } of sends) {
        const messages = timestamps.map((timestamp, n) => ({
          partition,
          value: n === 0 ? randomBytes(bytes) : `${n}`,
          ...(timestamp === null ? {} : { timestamp: `${timestamp}` }),
        }));
        const compression = gzip ? CompressionTypes.GZIP : CompressionTypes.None;
        found.push(await producer.send({ topic, acks: -1, compression, messages }));
      }
      return found;
    });
    return { bases: answers.map((each) => Number(each[0].baseOffset)) };
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
