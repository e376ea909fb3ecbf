// Members of the consumer protocol (KIP-848), which are consumers of Kafka's Java client, beside members of the classic
// one: `java Members.java SCENARIO HOST:PORT PREFIX` prints what it saw as one line of JSON. The names of topics and
// groups begin with PREFIX.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Members {
    static final long DEADLINE_MS = 60_000;
    static final Duration POLL = Duration.ofMillis(100);
    static final int PARTITIONS = 4;
    static final int MESSAGES = 20;

    static String address;
    static String prefix;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        address = arguments[1];
        prefix = arguments[2];
        admin = Admin.create(properties());
        Map<String, Object> seen = switch (arguments[0]) {
            case "share" -> share();
            case "commit" -> commit();
            case "static" -> staticMembers();
            case "regex" -> regex();
            case "migration" -> migration();
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        System.out.println(new ObjectMapper().writeValueAsString(seen));
        Runtime.getRuntime().halt(0);  // without closing what a scenario has left open
    }

    // Two members share four partitions; when one leaves, the other has all again.
    static Map<String, Object> share() throws Exception {
        String topic = topic("share");
        Member first = consumer(Map.of()).subscribed(topic);
        until(() -> first.owns(PARTITIONS), first);
        Member second = consumer(Map.of()).subscribed(topic);
        until(() -> first.owns(2) && second.owns(2), first, second);
        ConsumerGroupDescription group = group();
        int moved = first.revoked.size();
        second.client.close();
        until(() -> first.owns(PARTITIONS), first);
        return Map.of(
            "type", group.type().toString(), "state", group.groupState().toString(),
            "assignor", group.partitionAssignor(), "members", group.members().size(),
            "on target", group.members().stream().allMatch(
                each -> each.targetAssignment().orElseThrow().equals(each.assignment())
                    && each.memberEpoch().equals(group.groupEpoch())),
            "moved", moved, "after", first.client.assignment().size());
    }

    // A member commits half of what there is; the next one goes on there.
    static Map<String, Object> commit() throws Exception {
        String topic = topic("commit");
        produce(topic, 0);
        Member first = consumer(Map.of("max.poll.records", MESSAGES / 2)).subscribed(topic);
        until(() -> !first.values.isEmpty(), first);
        first.client.close();
        Member second = consumer(Map.of()).subscribed(topic);
        until(() -> first.values.size() + second.values.size() >= MESSAGES, second);
        return Map.of(
            "first", first.values.size() < MESSAGES,
            "both", sorted(first, second).equals(numbers(0)));
    }

    // A static member closes and returns with its partitions, and others keep theirs. Another process cannot take the
    // instance id while the member is there.
    static Map<String, Object> staticMembers() throws Exception {
        String topic = topic("static");
        Member staying = consumer(Map.of("group.instance.id", "staying")).subscribed(topic);
        Member former = consumer(Map.of("group.instance.id", "returning")).subscribed(topic);
        until(() -> staying.owns(2) && former.owns(2), staying, former);
        Set<TopicPartition> had = former.client.assignment();
        int moved = staying.revoked.size();
        former.client.close();
        Member returned = consumer(Map.of("group.instance.id", "returning")).subscribed(topic);
        until(() -> returned.client.assignment().equals(had), staying, returned);
        Member second = consumer(Map.of("group.instance.id", "returning")).subscribed(topic);
        return Map.of(
            "returned", returned.client.assignment().equals(had), "moved", staying.revoked.size() - moved,
            "second", refusal(second));
    }

    // The broker resolves the expression, and refuses one that does not compile.
    static Map<String, Object> regex() throws Exception {
        List.of("regex-a", "regex-b", "regex-other").forEach(Members::topic);
        Member member = consumer(Map.of());
        member.client.subscribe(new SubscriptionPattern(Pattern.quote(prefix) + "-regex-[ab]"), member);
        until(() -> member.owns(2 * PARTITIONS), member);
        Set<String> topics = new TreeSet<>();
        member.client.assignment().forEach(each -> topics.add(each.topic().substring(prefix.length())));
        Member wrong = consumer(Map.of());
        wrong.client.subscribe(new SubscriptionPattern("("), wrong);
        return Map.of("topics", topics, "wrong", refusal(wrong));
    }

    // A group changes to the consumer protocol and back, member by member; each message is read once.
    static Map<String, Object> migration() throws Exception {
        String topic = topic("migration");
        Map<String, Object> seen = new TreeMap<>();
        Member first = classic().subscribed(topic);
        until(() -> first.owns(PARTITIONS), first);
        seen.put("1", group().type() + " " + read(topic, 0, first));
        Member second = consumer(Map.of()).subscribed(topic);
        until(() -> first.owns(2) && second.owns(2), first, second);
        seen.put("2", group().type() + " " + read(topic, 1, first, second));
        long upgraded = group().members().stream().filter(each -> each.upgraded().orElseThrow()).count();
        seen.put("upgraded", upgraded + " of " + group().members().size());
        first.client.close();
        until(() -> second.owns(PARTITIONS), second);
        seen.put("3", group().type() + " " + read(topic, 2, second));
        Member third = classic().subscribed(topic);
        until(() -> third.owns(2) && second.owns(2), second, third);
        seen.put("4", group().type() + " " + read(topic, 3, second, third));
        second.client.close();
        until(() -> third.owns(PARTITIONS), third);
        seen.put("5", group().type() + " " + read(topic, 4, third));
        return seen;
    }

    // Whether these members read each message of a round once.
    static boolean read(String topic, int round, Member... members) throws Exception {
        for (Member member : members) {
            member.values.clear();
        }
        produce(topic, round);
        until(() -> sorted(members).size() >= MESSAGES, members);
        return sorted(members).equals(numbers(round));
    }

    static List<Integer> numbers(int round) {
        return IntStream.range(round * MESSAGES, (round + 1) * MESSAGES).boxed().toList();
    }

    static List<Integer> sorted(Member... members) {
        List<Integer> found = new ArrayList<>();
        for (Member member : members) {
            found.addAll(member.values);
        }
        Collections.sort(found);
        return found;
    }

    static class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> client;
        final Set<TopicPartition> revoked = new HashSet<>();
        final List<Integer> values = new ArrayList<>();

        Member(Properties properties) { client = new KafkaConsumer<>(properties); }

        Member subscribed(String topic) {
            client.subscribe(List.of(topic), this);
            return this;
        }

        boolean owns(int partitions) { return client.assignment().size() == partitions; }

        void poll() {
            int before = values.size();
            for (ConsumerRecord<String, String> each : client.poll(POLL)) {
                values.add(Integer.valueOf(each.value()));
            }
            if (values.size() > before) {
                client.commitSync();
            }
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) { revoked.addAll(partitions); }
    }

    static Member consumer(Map<String, Object> more) {
        Properties found = properties();
        found.put("group.protocol", "consumer");
        found.putAll(more);
        return new Member(found);
    }

    static Member classic() {
        Properties found = properties();
        found.put("group.protocol", "classic");
        found.put("heartbeat.interval.ms", 300);
        return new Member(found);
    }

    static Properties properties() {
        Properties found = new Properties();
        found.put("bootstrap.servers", address);
        found.put("group.id", prefix + "-group");
        found.put("auto.offset.reset", "earliest");
        found.put("enable.auto.commit", false);
        found.put("metadata.max.age.ms", 1_000);
        found.put("key.deserializer", StringDeserializer.class.getName());
        found.put("value.deserializer", StringDeserializer.class.getName());
        found.put("key.serializer", StringSerializer.class.getName());
        found.put("value.serializer", StringSerializer.class.getName());
        return found;
    }

    static String topic(String suffix) {
        String name = prefix + "-" + suffix;
        try {
            admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1))).all().get();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return name;
    }

    static void produce(String topic, int round) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties())) {
            for (Integer number : numbers(round)) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, number.toString())).get();
            }
        }
    }

    static ConsumerGroupDescription group() throws Exception {
        String name = prefix + "-group";
        return admin.describeConsumerGroups(List.of(name)).all().get().get(name);
    }

    // The error with which a member ends.
    static String refusal(Member member) {
        try {
            until(() -> false, member);
        } catch (KafkaException error) {
            return error.getClass().getSimpleName();
        }
        return "none";
    }

    static void until(BooleanSupplier ready, Member... members) {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (!ready.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                String owned = List.of(members).stream()
                    .map(each -> each.client.assignment() + " " + each.values.size())
                    .collect(Collectors.joining("; "));
                throw new IllegalStateException("still waiting; members own " + owned);
            }
            for (Member member : members) {
                member.poll();
            }
        }
    }
}
