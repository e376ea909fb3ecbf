// Kafka's Java client with TLS and a login: `java Login.java SCENARIO HOST:PORT FILE` prints what it saw as one line of
// JSON. FILE has the logins by name: {"NAME": {"ca": PATH, "mechanism": …, "user": …, "password": …, "token": URL,
// "certificate": PATH, "key": PATH, "value": …}}. A login without a mechanism is by certificate.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Login {
    static final String TOPIC = "orders";
    static final String FORBIDDEN = "forbidden";
    static final long DEADLINE_MS = 60_000;
    static final int REAUTHENTICATIONS = 2;
    static final String PACKAGE = "org.apache.kafka.common.security.";

    public static void main(String[] arguments) throws Exception {
        String scenario = arguments[0];
        String address = arguments[1];
        ObjectMapper json = new ObjectMapper();
        JsonNode logins = json.readTree(Path.of(arguments[2]).toFile());
        allowTokens(logins);
        Map<String, Object> seen = new LinkedHashMap<>();
        for (Map.Entry<String, JsonNode> login : logins.properties()) {
            Properties properties = properties(address, login.getValue());
            String value = login.getKey();
            seen.put(value, scenario.equals("again") ? again(properties) : use(properties, value));
        }
        System.out.println(json.writeValueAsString(seen));
    }

    // The client reads a token only from addresses that the process allows.
    static void allowTokens(JsonNode logins) {
        StringBuilder allowed = new StringBuilder();
        for (JsonNode login : logins) {
            if (login.has("token")) {
                allowed.append(allowed.isEmpty() ? "" : ",").append(login.get("token").asText());
            }
        }
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", allowed.toString());
    }

    static Properties properties(String address, JsonNode login) throws Exception {
        Properties found = new Properties();
        found.put("bootstrap.servers", address);
        found.put("security.protocol", login.has("mechanism") ? "SASL_SSL" : "SSL");
        found.put("ssl.truststore.type", "PEM");
        found.put("ssl.truststore.location", login.get("ca").asText());
        if (login.has("certificate")) {
            found.put("ssl.keystore.type", "PEM");
            found.put("ssl.keystore.certificate.chain", Files.readString(Path.of(login.get("certificate").asText())));
            found.put("ssl.keystore.key", Files.readString(Path.of(login.get("key").asText())));
        }
        if (login.has("mechanism")) {
            String mechanism = login.get("mechanism").asText();
            found.put("sasl.mechanism", mechanism);
            found.put("sasl.jaas.config", module(mechanism, login));
            if (login.has("token")) {
                found.put("sasl.oauthbearer.token.endpoint.url", login.get("token").asText());
                found.put(
                    "sasl.login.callback.handler.class",
                    PACKAGE + "oauthbearer.OAuthBearerLoginCallbackHandler");
            }
        }
        found.put("key.serializer", StringSerializer.class.getName());
        found.put("value.serializer", StringSerializer.class.getName());
        found.put("key.deserializer", StringDeserializer.class.getName());
        found.put("value.deserializer", StringDeserializer.class.getName());
        found.put("max.block.ms", "20000");
        found.put("request.timeout.ms", "10000");
        found.put("delivery.timeout.ms", "20000");
        return found;
    }

    static String module(String mechanism, JsonNode login) {
        if (mechanism.equals("OAUTHBEARER")) {
            return PACKAGE + "oauthbearer.OAuthBearerLoginModule required;";
        }
        String name = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String user = login.get("user").asText();
        String password = login.get("password").asText();
        return PACKAGE + name + " required username=\"" + user + "\" password=\"" + password + "\";";
    }

    // Sends a message and reads it back in a group; then sends one to a topic without the right.
    static Map<String, Object> use(Properties properties, String value) {
        Map<String, Object> seen = new TreeMap<>();
        try {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
                seen.put("sent", send(producer, TOPIC, value));
                if (seen.get("sent").equals("yes")) {
                    seen.put("read", read(properties, value));
                    seen.put("forbidden", send(producer, FORBIDDEN, value));
                }
            }
        } catch (Exception error) {  // the login itself
            seen.put("sent", named(error));
        }
        return seen;
    }

    static String send(KafkaProducer<String, String> producer, String topic, String value) throws Exception {
        try {
            producer.send(new ProducerRecord<>(topic, value)).get();
            return "yes";
        } catch (ExecutionException error) {
            return named(error.getCause());
        }
    }

    static boolean read(Properties properties, String value) {
        Properties reading = new Properties();
        reading.putAll(properties);
        reading.put("group.id", "login-" + value.replaceAll("[^A-Za-z0-9]", "-"));
        reading.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading)) {
            consumer.subscribe(List.of(TOPIC));
            long end = System.currentTimeMillis() + DEADLINE_MS;
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (value.equals(record.value())) {
                        return true;
                    }
                }
            }
            return false;
        }
    }

    // Sends until the client has authenticated again on its connections, which the broker asks for.
    static Map<String, Object> again(Properties properties) throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            long end = System.currentTimeMillis() + DEADLINE_MS;
            String sent = "yes";
            while (sent.equals("yes") && total(producer, "successful-reauthentication-total") < REAUTHENTICATIONS
                    && System.currentTimeMillis() < end) {
                sent = send(producer, TOPIC, "again");
                Thread.sleep(100);
            }
            seen.put("sent", sent);
            seen.put("again", total(producer, "successful-reauthentication-total") >= REAUTHENTICATIONS);
            seen.put("failed", total(producer, "failed-reauthentication-total"));
        }
        return seen;
    }

    static double total(KafkaProducer<String, String> producer, String name) {
        double found = 0;
        for (Metric metric : producer.metrics().values()) {
            if (metric.metricName().name().equals(name) && metric.metricName().group().equals("producer-metrics")) {
                found += ((Number) metric.metricValue()).doubleValue();
            }
        }
        return found;
    }

    static String named(Throwable error) {
        while (error.getCause() != null && !error.getClass().getName().startsWith("org.apache.kafka.common.errors")) {
            error = error.getCause();
        }
        return error.getClass().getSimpleName() + ": " + error.getMessage();
    }
}
