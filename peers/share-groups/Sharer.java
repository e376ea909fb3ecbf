// A member of a share group that logs what it does, as tests/faults/processes/share_member.py does: `java Sharer.java
// WANTED`, where WANTED is JSON. It leaves in order at SIGTERM.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Sharer {
    static final double RELEASED_SHARE = 0.1;
    static final double RESPONSE_SECONDS_MAX = 1.5;
    static final ObjectMapper JSON = new ObjectMapper();
    static volatile boolean ending;

    public static void main(String[] arguments) throws Exception {
        JsonNode wanted = JSON.readTree(arguments[0]);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ending = true;
            try {
                main.join(20_000);
            } catch (InterruptedException error) {
                // the process ends anyway
            }
        }));
        log("started", Map.of());
        Random draw = new Random(wanted.get("seed").asLong());
        List<String> kafka = new ArrayList<>();
        wanted.get("kafka").forEach(each -> kafka.add(each.asText()));
        Properties config = new Properties();
        config.put("bootstrap.servers", String.join(",", kafka));
        config.put("group.id", wanted.get("group").asText());
        config.put("share.acknowledgement.mode", "explicit");
        config.put("max.poll.records", 20);
        config.put("reconnect.backoff.max.ms", 500);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        ArrayDeque<Double> polls = new ArrayDeque<>(List.of(now()));
        try (KafkaShareConsumer<String, String> member = new KafkaShareConsumer<>(config)) {
            member.subscribe(List.of(wanted.get("topic").asText()));
            while (!ending) {
                polls.add(now());
                while (polls.size() > 1 && now() - second(polls) > RESPONSE_SECONDS_MAX) {
                    polls.removeFirst();
                }
                step(member, polls.peekFirst(), draw);
            }
        }
        log("ended", Map.of());
    }

    static double second(ArrayDeque<Double> polls) {
        var each = polls.iterator();
        each.next();
        return each.next();
    }

    static void step(KafkaShareConsumer<String, String> member, double since, Random draw) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        member.poll(Duration.ofMillis(500)).forEach(found::add);
        if (found.isEmpty()) {
            return;
        }
        log("got", Map.of("since", since, "messages", found.stream().map(each -> List.of(
            each.partition(), each.offset(), each.key(), each.deliveryCount().orElseThrow())).toList()));
        Map<Integer, List<Object>> fates = new HashMap<>();
        List<Object> all = new ArrayList<>();
        for (ConsumerRecord<String, String> each : found) {
            boolean isReleased = draw.nextDouble() < RELEASED_SHARE;
            member.acknowledge(each, isReleased ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            List<Object> settled = List.of(
                each.partition(), each.offset(), each.deliveryCount().orElseThrow(), isReleased ? "release" : "accept");
            fates.computeIfAbsent(each.partition(), key -> new ArrayList<>()).add(settled);
            all.add(settled);
        }
        log("settling", Map.of("messages", all));
        Map<TopicIdPartition, Optional<KafkaException>> results = member.commitSync();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : results.entrySet()) {
            List<Object> messages = fates.getOrDefault(each.getKey().partition(), List.of());
            if (each.getValue().isEmpty()) {
                log("settled", Map.of("messages", messages));
            } else {
                log("refused", Map.of("messages", messages, "reason", each.getValue().get().getClass().getSimpleName()));
            }
        }
    }

    static double now() { return System.nanoTime() / 1e9; }

    static void log(String event, Map<String, Object> fields) throws Exception {
        Map<String, Object> line = new HashMap<>(fields);
        line.put("at", now());
        line.put("event", event);
        System.out.println(JSON.writeValueAsString(line));
    }
}
