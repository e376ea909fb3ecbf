// Kafka Streams against a broker: words are counted exactly once (exactly_once_v2), through an internal topic and a
// changelog. `java WordCount.java HOST:PORT PREFIX FOLDER PROTOCOL` prints the counts as one line of JSON, or the class of
// the error that ends it; its state is kept in FOLDER.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    static final List<String> LINES = List.of("the mill and the pond", "the pond", "and the mill");
    static final Map<String, Long> EXPECTED = Map.of("the", 4L, "mill", 2L, "pond", 2L, "and", 2L);
    static final long DEADLINE_MS = 90_000;
    static final AtomicReference<Throwable> FAILURE = new AtomicReference<>();

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String prefix = arguments[1];
        String input = prefix + "-lines";
        String output = prefix + "-counts";
        makeTopics(address, input, output);
        write(address, input);
        Properties settings = settings(address, prefix, arguments[2]);
        settings.put("group.protocol", arguments[3]);
        Map<String, Long> counts;
        try (KafkaStreams streams = new KafkaStreams(topology(input, output), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                FAILURE.set(error);
                return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            counts = read(address, output);
        }
        System.out.println(FAILURE.get() == null ? json(counts) : failed(FAILURE.get()));
    }

    static String failed(Throwable error) {
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return "{\"error\": \"" + error.getClass().getSimpleName() + "\"}";
    }

    static void makeTopics(String address, String... names) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            List<NewTopic> wanted = Arrays.stream(names).map(name -> new NewTopic(name, 2, (short) 1)).toList();
            admin.createTopics(wanted).all().get();
        }
    }

    static void write(String address, String topic) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", address));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line : LINES) {
                producer.send(new ProducerRecord<>(topic, line)).get();
            }
        }
    }

    static Topology topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(input);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    static Properties settings(String address, String prefix, String folder) {
        Properties settings = new Properties();
        settings.put("application.id", prefix + "-streams");
        settings.put("bootstrap.servers", address);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("commit.interval.ms", "200");
        settings.put("state.dir", folder);
        settings.put("auto.offset.reset", "earliest");
        settings.put("replication.factor", "1");
        return settings;
    }

    static Map<String, Long> read(String address, String topic) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", topic + "-reader");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        Map<String, Long> counts = new TreeMap<>();
        long end = System.currentTimeMillis() + DEADLINE_MS;
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!counts.equals(EXPECTED) && FAILURE.get() == null && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    counts.put(record.key(), record.value());
                }
            }
        }
        return counts;
    }

    static String json(Map<String, Long> counts) {
        List<String> pairs = new ArrayList<>();
        counts.forEach((word, count) -> pairs.add("\"" + word + "\": " + count));
        return pairs.stream().collect(Collectors.joining(", ", "{", "}"));
    }
}
