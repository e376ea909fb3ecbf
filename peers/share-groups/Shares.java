// Members of share groups (KIP-932), which are share consumers of Kafka's Java client: `java Shares.java SCENARIO
// HOST:PORT PREFIX` prints what it saw as one line of JSON. The names of topics and groups begin with PREFIX.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Shares {
    static final long DEADLINE_MS = 60_000;
    static final Duration POLL = Duration.ofMillis(200);
    static final int LOCK_MS = 2_000;

    static String address;
    static String prefix;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        address = arguments[1];
        prefix = arguments[2];
        admin = Admin.create(properties());
        Object seen = switch (arguments[0]) {
            case "implicit" -> implicit();
            case "explicit" -> explicit();
            case "renew" -> renew();
            case "expiry" -> expiry();
            case "limit" -> limit();
            case "members" -> members();
            case "batches" -> batches();
            case "transactions" -> transactions();
            case "administration" -> administration();
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        System.out.println(new ObjectMapper().writeValueAsString(seen));
        Runtime.getRuntime().halt(0);  // without closing what a scenario has left open
    }

    // Records are accepted by the next poll, and by commitSync. A later member receives only what is left.
    static Object implicit() throws Exception {
        String topic = topic("implicit", 2);
        produce(topic, 0, 20, Map.of());
        Member first = member("implicit").subscribed(topic);
        until(() -> first.seen.size() >= 20, first);
        first.client.commitSync();
        first.client.close();
        produce(topic, 20, 1, Map.of());
        Member second = member("implicit").subscribed(topic);
        until(() -> !second.seen.isEmpty(), second);
        return Map.of("once", first.onceEach(0, 20), "left", second.names());
    }

    // One record is accepted, one rejected, one released, which is delivered again.
    static Object explicit() throws Exception {
        String topic = topic("explicit", 1);
        produce(topic, 0, 3, Map.of());
        Member member = member("explicit").subscribed(topic);
        member.deciding = record -> switch (record.value() + " " + record.deliveryCount().orElseThrow()) {
            case "1 1" -> AcknowledgeType.REJECT;
            case "2 1" -> AcknowledgeType.RELEASE;
            default -> AcknowledgeType.ACCEPT;
        };
        until(() -> member.names().contains("2 2"), member);
        produce(topic, 3, 1, Map.of());
        until(() -> member.names().contains("3 1"), member);
        return Map.of("seen", new TreeSet<>(member.names()), "lock", member.client.acquisitionLockTimeoutMs().orElseThrow());
    }

    // A record whose lock is renewed stays with its member for much longer than the lock lasts.
    static Object renew() throws Exception {
        String topic = topic("renew", 1);
        produce(topic, 0, 1, Map.of());
        Member holder = member("explicit").subscribed(topic);
        Member other = member("explicit").subscribed(topic);
        long end = System.currentTimeMillis() + DEADLINE_MS;
        List<ConsumerRecord<String, String>> held = new ArrayList<>();
        while (held.isEmpty() && System.currentTimeMillis() < end) {
            holder.client.poll(POLL).forEach(held::add);
        }
        ConsumerRecord<String, String> record = held.get(0);
        long until = System.currentTimeMillis() + 3 * LOCK_MS;
        int renewals = 0;
        while (System.currentTimeMillis() < until) {
            holder.client.acknowledge(record, AcknowledgeType.RENEW);
            check(holder.client.commitSync());
            renewals++;
            other.poll();
            for (ConsumerRecord<String, String> each : holder.client.poll(Duration.ofMillis(100))) {
                record = each;  // the client returns a renewed record again
            }
        }
        holder.client.acknowledge(record, AcknowledgeType.ACCEPT);
        String outcome = check(holder.client.commitSync());
        produce(topic, 1, 1, Map.of());
        until(() -> !other.seen.isEmpty(), other);
        return Map.of(
            "renewed", renewals > 3, "count", record.deliveryCount().orElseThrow(), "outcome", outcome,
            "other", other.names());
    }

    // A record whose lock ends comes to the other member, whose acknowledgement counts.
    static Object expiry() throws Exception {
        String topic = topic("expiry", 1);
        produce(topic, 0, 1, Map.of());
        Member slow = member("explicit").subscribed(topic);
        slow.deciding = record -> null;
        until(() -> !slow.seen.isEmpty(), slow);
        Member other = member("explicit").subscribed(topic);
        until(() -> !other.seen.isEmpty(), other);
        slow.client.acknowledge(slow.seen.get(0), AcknowledgeType.ACCEPT);
        slow.client.commitSync();  // the client knows that the lock has ended, and sends nothing
        produce(topic, 1, 1, Map.of());
        until(() -> other.seen.size() >= 2, other);
        return other.names();
    }

    // A record is delivered as often as the group's limit says.
    static Object limit() throws Exception {
        String topic = topic("limit", 1);
        configure("share.delivery.count.limit", "2");
        produce(topic, 0, 1, Map.of());
        Member member = member("explicit").subscribed(topic);
        member.deciding = record -> record.value().equals("0") ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
        until(() -> member.seen.size() >= 2, member);
        produce(topic, 1, 1, Map.of());
        until(() -> member.names().contains("1 1"), member);
        return member.names();
    }

    // Three members share one partition; what the one that closes has not acknowledged comes to the others.
    static Object members() throws Exception {
        String topic = topic("members", 1);
        for (int number = 0; number < 60; number++) {
            produce(topic, number, 1, Map.of());
        }
        Map<String, Object> few = Map.of("max.poll.records", 5, "share.acquire.mode", "record_limit");
        Member leaving = member("explicit", few).subscribed(topic);
        leaving.deciding = record -> null;
        until(() -> !leaving.seen.isEmpty(), leaving);
        int held = leaving.seen.size();
        leaving.client.close();
        Member[] two = {member("explicit", few).subscribed(topic), member("explicit", few).subscribed(topic)};
        until(() -> two[0].seen.size() + two[1].seen.size() >= 60, two);
        TreeMap<String, Integer> counts = new TreeMap<>();
        for (Member each : two) {
            each.names().forEach(name -> counts.merge(name.split(" ")[1], 1, Integer::sum));
        }
        return Map.of(
            "held", held, "counts", counts, "both", !two[0].seen.isEmpty() && !two[1].seen.isEmpty(),
            "group", description().members().size() >= 2);
    }

    // Batches of a hundred records, of each codec: half of them is released, and delivered again.
    static Object batches() throws Exception {
        String topic = topic("batches", 1);
        List<String> codecs = List.of("none", "gzip", "snappy", "lz4", "zstd");
        for (int number = 0; number < codecs.size(); number++) {
            Map<String, Object> config = Map.of("compression.type", codecs.get(number), "linger.ms", 1_000);
            produce(topic, 100 * number, 100, config);
        }
        Member member = member("explicit").subscribed(topic);
        member.deciding = record -> Integer.parseInt(record.value()) % 2 == 1 && record.deliveryCount().orElseThrow() == 1
            ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
        until(() -> member.seen.size() >= 750, member);
        long first = member.names().stream().filter(each -> each.endsWith(" 1")).distinct().count();
        long second = member.names().stream().filter(each -> each.endsWith(" 2")).distinct().count();
        return Map.of("first", first, "second", second, "all", member.seen.size());
    }

    // Records of an aborted transaction come, unless the group reads what is committed.
    static Object transactions() throws Exception {
        String topic = topic("transactions", 1);
        for (String end : List.of("commit", "abort", "commit")) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                    properties(Map.of("transactional.id", prefix + "-transactions")))) {
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, end)).get();
                if (end.equals("abort")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Map<String, Object> seen = new TreeMap<>();
        for (String level : List.of("read_committed", "read_uncommitted")) {
            String group = prefix + "-" + level;
            configure(group, "share.isolation.level", level);
            configure(group, "share.auto.offset.reset", "earliest");
            Member member = new Member(properties(Map.of("group.id", group))).subscribed(topic);
            int count = level.equals("read_committed") ? 2 : 3;
            until(() -> member.seen.size() >= count, member);
            seen.put(level, member.names());
            member.client.close();
        }
        return seen;
    }

    // Describes the group, lists its offsets, moves them, and deletes them.
    static Object administration() throws Exception {
        String topic = topic("administration", 2);
        produce(topic, 0, 10, Map.of());
        Member member = member("implicit").subscribed(topic);
        until(() -> member.seen.size() >= 10, member);
        member.client.commitSync();
        Map<String, Object> seen = new TreeMap<>();
        ShareGroupDescription busy = description();
        seen.put("1 described", busy.groupState() + " " + busy.members().size());
        seen.put("2 lag", offsets(topic).values().stream().map(each -> each.split(" lag ")[1]).toList());
        seen.put("3 refused", refusal(() -> admin.alterShareGroupOffsets(
            group(), Map.of(new TopicPartition(topic, 0), 0L)).all().get()));
        member.client.close();
        until(() -> description().members().isEmpty());
        admin.alterShareGroupOffsets(group(), Map.of(new TopicPartition(topic, 0), 2L)).all().get();
        seen.put("4 moved", offsets(topic).get("0"));
        Member second = member("implicit").subscribed(topic);
        until(() -> second.seen.size() >= 3, second);
        second.client.commitSync();
        second.client.close();
        seen.put("5 again", second.seen.stream().map(each -> each.partition() + ":" + each.offset()).toList());
        until(() -> description().members().isEmpty());
        admin.deleteShareGroupOffsets(group(), java.util.Set.of(topic)).all().get();
        seen.put("6 without offsets", admin.listShareGroupOffsets(
            Map.of(group(), new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group()).get().size());
        admin.deleteShareGroups(List.of(group())).all().get();
        seen.put("7 deleted", refusal(Shares::description));
        return seen;
    }

    static Map<String, String> offsets(String topic) throws Exception {
        Map<String, String> found = new TreeMap<>();
        admin.listShareGroupOffsets(Map.of(group(), new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group()).get()
            .forEach((partition, info) -> found.put(
                String.valueOf(partition.partition()), info.startOffset() + " lag " + info.lag().orElse(-1L)));
        return found;
    }

    interface Deciding { AcknowledgeType of(ConsumerRecord<String, String> record); }

    interface Action { Object run() throws Exception; }

    static class Member {
        final KafkaShareConsumer<String, String> client;
        final List<ConsumerRecord<String, String>> seen = new ArrayList<>();
        final boolean isExplicit;
        Deciding deciding = record -> AcknowledgeType.ACCEPT;

        Member(Properties properties) {
            client = new KafkaShareConsumer<>(properties);
            isExplicit = "explicit".equals(properties.get("share.acknowledgement.mode"));
        }

        Member subscribed(String topic) {
            client.subscribe(List.of(topic));
            return this;
        }

        // Without a decision nothing is acknowledged.
        void poll() {
            boolean decided = false;
            for (ConsumerRecord<String, String> each : client.poll(POLL)) {
                seen.add(each);
                AcknowledgeType type = isExplicit ? deciding.of(each) : null;
                if (type != null) {
                    client.acknowledge(each, type);
                    decided = true;
                }
            }
            if (decided && !check(client.commitSync()).equals("none")) {
                throw new IllegalStateException("an acknowledgement failed");
            }
        }

        // Value and delivery count.
        List<String> names() {
            return seen.stream().map(each -> each.value() + " " + each.deliveryCount().orElseThrow()).toList();
        }

        boolean onceEach(int start, int count) {
            TreeSet<String> wanted = new TreeSet<>();
            for (int number = start; number < start + count; number++) {
                wanted.add(number + " 1");
            }
            return seen.size() == count && wanted.equals(new TreeSet<>(names()));
        }
    }

    // The error of some acknowledgement, or "none".
    static String check(Map<TopicIdPartition, java.util.Optional<KafkaException>> results) {
        return results.values().stream().flatMap(java.util.Optional::stream)
            .map(error -> error.getClass().getSimpleName()).findFirst().orElse("none");
    }

    static Member member(String mode) { return member(mode, Map.of()); }

    static Member member(String mode, Map<String, Object> more) {
        Map<String, Object> found = new HashMap<>(more);
        found.put("share.acknowledgement.mode", mode);
        return new Member(properties(found));
    }

    static Properties properties() { return properties(Map.of()); }

    static Properties properties(Map<String, Object> more) {
        Properties found = new Properties();
        found.put("bootstrap.servers", address);
        found.put("group.id", group());
        found.put("key.deserializer", StringDeserializer.class.getName());
        found.put("value.deserializer", StringDeserializer.class.getName());
        found.put("key.serializer", StringSerializer.class.getName());
        found.put("value.serializer", StringSerializer.class.getName());
        found.putAll(more);
        return found;
    }

    static String group() { return prefix + "-group"; }

    // The group starts at the beginning of it, and its locks are short.
    static String topic(String suffix, int partitions) throws Exception {
        String name = prefix + "-" + suffix;
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        configure("share.auto.offset.reset", "earliest");
        configure("share.record.lock.duration.ms", String.valueOf(LOCK_MS));
        return name;
    }

    static void configure(String name, String value) throws Exception { configure(group(), name, value); }

    static void configure(String group, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Collection<AlterConfigOp> changes =
            List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    static void produce(String topic, int start, int count, Map<String, Object> config) throws Exception {
        int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties(config))) {
            for (int number = start; number < start + count; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, null, String.valueOf(number)));
            }
            producer.flush();
        }
    }

    static ShareGroupDescription description() {
        try {
            return admin.describeShareGroups(List.of(group())).all().get().get(group());
        } catch (Exception error) {
            throw new IllegalStateException(error.getCause() == null ? error : error.getCause());
        }
    }

    static String refusal(Action action) {
        try {
            action.run();
            return "none";
        } catch (Exception error) {
            return (error.getCause() == null ? error : error.getCause()).getClass().getSimpleName();
        }
    }

    static void until(BooleanSupplier ready, Member... members) {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (!ready.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                List<String> seen = new ArrayList<>();
                for (Member member : members) {
                    seen.addAll(member.names());
                }
                throw new IllegalStateException("still waiting; members have seen " + seen);
            }
            for (Member member : members) {
                member.poll();
            }
        }
    }
}
