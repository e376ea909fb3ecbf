// Apache Flink against a broker: `java Copy HOST:PORT INPUT OUTPUT FOLDER` copies a topic exactly once, with the Kafka
// connector's source and its transactional sink. The job fails once, after some checkpoints, and goes on from the last one.
// It prints {"failures": …, "checkpoints": …} as JSON.

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copy {
    static final AtomicInteger CHECKPOINTS = new AtomicInteger();
    static final AtomicInteger FAILURES = new AtomicInteger();
    static final int CHECKPOINTS_BEFORE_FAILURE = 3;

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "300 ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[3]);
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "2");
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        settings.setString("taskmanager.memory.network.min", "16mb");
        settings.setString("taskmanager.memory.network.max", "16mb");
        StreamExecutionEnvironment flow = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(address)
            .setTopics(arguments[1])
            .setGroupId(arguments[1] + "-flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(address)
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(arguments[2])
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        flow.fromSource(source, WatermarkStrategy.noWatermarks(), "topic").map(new FailsOnce()).sinkTo(sink);
        flow.execute("copy");
        System.out.println("{\"failures\": " + FAILURES + ", \"checkpoints\": " + CHECKPOINTS + "}");
    }

    // Slow, so that there are checkpoints before the end.
    static class FailsOnce extends RichMapFunction<String, String> implements CheckpointListener {
        @Override
        public String map(String value) throws Exception {
            Thread.sleep(1);
            if (CHECKPOINTS.get() >= CHECKPOINTS_BEFORE_FAILURE && FAILURES.compareAndSet(0, 1)) {
                throw new IllegalStateException("fails once");
            }
            return value;
        }

        @Override
        public void notifyCheckpointComplete(long id) {
            CHECKPOINTS.incrementAndGet();
        }
    }
}
